"""Decodes packed words to gradients, in one pass under XLA."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import codec
from terngrad_tf.ternary.fused import compiled, digit_split, partition


def decode(
    words: tf.Tensor,
    scales: tf.Tensor,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[tf.DType],
    *,
    base: int = 3,
    total_bias: int,
    weights: Sequence[int] | None = None,
) -> list[tf.Tensor]:
    """Sums the codes of all senders and scales them: `s_t * (sum_k w_k digit_k - total_bias)`.

    Args:
        words: int32 tensor [K, W]: results of `encode` on K senders, or sums of them.
        scales: float32 tensor [T]; divide by N for the mean over N replicas. If a scale is NaN or
            infinite, the whole tensor is NaN.
        shapes: T static shapes.
        dtypes: T floating-point types; the result is computed in float32 and cast.
        base: base given to `encode`.
        total_bias: codes are stored as code + L: L times the number of replicas in the words, which
            is K for words of single replicas, otherwise the sum of the weights.
        weights: K positive integers w_k, such as `trit_values`. Default 1.

    Returns:
        List of T tensors.

    Raises:
        ValueError: the arguments do not match.

    Example:
    >>> words = encode([tf.constant([0.5, -0.5])], [0.5], seed=0, step=0, replica=0, num_replicas=1)
    >>> decode(words[tf.newaxis], [0.5], [[2]], [tf.float32], total_bias=1)[0].numpy().tolist()
    [0.5, -0.5]
    """
    words = tf.convert_to_tensor(words)
    shapes, dtypes = _static(shapes, dtypes)
    expected = sum(codec.num_words(partition.num_elements(shape), base) for shape in shapes)
    if words.shape.rank != 2 or words.shape[1] != expected:
        raise ValueError(f"`words` must have shape [senders, {expected}]. Received: {words.shape}")
    if not shapes:
        return []
    weights = tuple(weights) if weights is not None else (1,) * words.shape[0]
    run = _decoder(weights, shapes, dtypes, base, total_bias)
    return run(words, tf.cast(scales, tf.float32))


def decode_chunks(
    words: tf.Tensor,
    scales: tf.Tensor,
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[tf.DType],
    *,
    chunk_words: int,
    base_in: int = 3,
    base_out: int,
    total_bias: int,
    owner_scales: tf.Tensor | None = None,
) -> list[tf.Tensor]:
    """Decodes sums that M owners computed chunk by chunk.

    The W words of `encode` in base `base_in`, padded to `M * chunk_words`, were cut into M chunks;
    owner m turned chunk m of all senders into row m of `words` with `reduce_chunk`, or with
    `requantize_chunk`, whose digits are codes again.

    Args:
        words: int32 tensor [M, num_words(digits_per_word(base_in) * chunk_words, base_out)].
        scales: float32 tensor [T], see `decode`.
        shapes: T static shapes.
        dtypes: T floating-point types.
        chunk_words: number of words of a chunk.
        base_in: base of the words that were summed.
        base_out: base of the sums.
        total_bias: subtracted from each digit, see `decode`; after `requantize_chunk` L.
        owner_scales: float32 tensor [M, T], further factors of owners' digits. Default 1.

    Returns:
        List of T tensors, `s_t * owner_scale * (digit - total_bias)`.

    Raises:
        ValueError: the arguments do not match.
    """
    words = tf.convert_to_tensor(words)
    shapes, dtypes = _static(shapes, dtypes)
    needed = sum(codec.num_words(partition.num_elements(shape), base_in) for shape in shapes)
    row = codec.num_words(codec.digits_per_word(base_in) * chunk_words, base_out)
    if words.shape.rank != 2 or words.shape[1] != row or words.shape[0] * chunk_words < needed:
        raise ValueError(
            f"`words` must have shape [owners, {row}] with owners * chunk_words >= {needed}."
            f" Received: shape {words.shape}, chunk_words={chunk_words}"
        )
    if not shapes:
        return []
    run = _chunks_decoder(
        words.shape[0], shapes, dtypes, chunk_words, base_in, base_out, total_bias
    )
    scales = tf.cast(scales, tf.float32)
    return run(words, scales if owner_scales is None else scales * owner_scales)


def _static(shapes, dtypes):
    shapes = tuple(tuple(tf.TensorShape(shape).as_list()) for shape in shapes)
    dtypes = tuple(tf.as_dtype(dtype) for dtype in dtypes)
    if len(shapes) != len(dtypes):
        raise ValueError(
            f"`dtypes` must have one entry per shape ({len(shapes)}). Received: {len(dtypes)}"
        )
    return shapes, dtypes


@functools.cache
def _decoder(weights, shapes, dtypes, base, total_bias):
    """Returns the function for these tensors: words to parts, parts to values, one loop each."""
    split, cut = digit_split.of_base(base), digit_split.cutter(base)
    digits = functools.partial(split.sum_digits, weights=weights)
    tensors_of = _Segments(shapes, dtypes, base).decoder(digits, total_bias)
    return tf.function(lambda words, scales: tensors_of(cut(words), scales), autograph=False)


@functools.cache
def _chunks_decoder(owners, shapes, dtypes, chunk_words, base_in, base_out, total_bias):
    split, cut = digit_split.of_base(base_out), digit_split.cutter(base_out)
    count = codec.digits_per_word(base_in)
    to_int32 = functools.partial(tf.cast, dtype=tf.int32)
    tensors_of = _Segments(shapes, dtypes, base_in, chunk_words).decoder(to_int32, total_bias)

    @compiled.compiled
    def digits(parts):
        rows = [split.digits(parts[owner]) for owner in range(owners)]
        return tf.cast(tf.stack(rows), split.dtype)

    def run(words, scales):
        sums = tf.reshape(digits(cut(words)), [owners, -1])[:, : count * chunk_words]
        sums = tf.transpose(tf.reshape(sums, [owners, count, chunk_words]), [1, 0, 2])
        return tensors_of(tf.reshape(sums, [count, owners * chunk_words]), scales)

    return tf.function(run, autograph=False)


class _Segments:
    """Columns of words decoded by one loop: a large tensor, or a run of small ones.

    Args:
        base: base in which the tensors' words are laid out.
        chunk_words: number of columns per owner.
    """

    def __init__(self, shapes, dtypes, base, chunk_words=1):
        large, small = partition.split(shapes)
        self._shapes, self._dtypes, self._chunk_words = shapes, dtypes, chunk_words
        widths = [codec.num_words(partition.num_elements(shape), base) for shape in shapes]
        self._segments = [
            {i: widths[i] for i in members}
            for members in sorted([[i] for i in large] + partition.runs(small))
        ]
        ends = np.cumsum([sum(widths.values()) for widths in self._segments]).tolist()
        # The first column of each segment, and the first after it.
        self._bounds = list(itertools.pairwise([0, *ends]))

    def decoder(self, digits, total_bias):
        """Returns a function of parts or digits `[..., columns]` and scales to the tensors.

        Scales are `[T]`, or `[owners, T]`.

        Args:
            digits: returns the summed digits of columns, int32.
        """

        @compiled.called
        def scaled_codes(piece, scale):
            return scale * tf.cast(digits(piece) - total_bias, tf.float32)

        @compiled.compiled
        def values(pieces, scales):
            lengths = [end - start for start, end in self._bounds]
            padding = pieces.shape[-1] - sum(lengths)
            *segments, _ = tf.split(pieces, [*lengths, padding], -1)
            return [scaled_codes(*pair) for pair in zip(segments, scales, strict=True)]

        return lambda pieces, scales: self._tensors(values(pieces, self._scales(scales)))

    def _scales(self, scales):
        """Returns the scale of each segment: a scalar, or one value per column."""
        finite = tf.math.is_finite(scales)
        scales = tf.where(finite, scales, tf.constant(np.nan, tf.float32))
        result = []
        for widths, (start, end) in zip(self._segments, self._bounds, strict=True):
            first = next(iter(widths))
            if len(widths) > 1:
                result.append(self._of_run(scales, widths, start))
            elif scales.shape.rank == 2:
                result.append(self._of_columns(scales[:, first], start, end))
            else:
                result.append(scales[first])
        return result

    def _of_run(self, scales, widths, start):
        """Returns one scale per column of a run of small tensors."""
        constant = compiled.constants()
        owners = [tf.unstack(row) for row in tf.unstack(scales)] if scales.shape.rank == 2 else []
        values, fills = [] if owners else tf.unstack(scales), []
        for i, width in widths.items():
            end = start + width
            while start < end:
                owner = start // self._chunk_words
                until = min(end, (owner + 1) * self._chunk_words) if owners else end
                value = owners[owner][i] if owners else values[i]
                fills.append(tf.fill(constant((until - start,)), value))
                start = until
        # No columns, if all tensors of the run are empty.
        return tf.concat(fills, 0) if fills else tf.zeros([0], tf.float32)

    def _of_columns(self, scale, start, end):
        """Returns a tensor's scale by column, given one per owner."""
        # Not within `values`: XLA would select among all owners for each element.
        first, last = start // self._chunk_words, (end - 1) // self._chunk_words + 1
        offset = first * self._chunk_words
        return tf.repeat(scale[first:last], self._chunk_words)[start - offset : end - offset]

    def _tensors(self, values):
        """Turns values `[..., columns]` of the segments into the tensors."""
        constant, result = compiled.constants(), []
        for widths, segment in zip(self._segments, values, strict=True):
            rows = segment.shape[:-1].num_elements()
            segment = tf.reshape(segment, constant((rows, segment.shape[-1])))
            parts = tf.split(segment, [*widths.values()], axis=-1)
            for i, planes in zip(widths, parts, strict=True):
                size = partition.num_elements(self._shapes[i])
                if size < planes.shape.num_elements():
                    # A view, not a copy, if the size is a multiple of 16.
                    flat = tf.reshape(planes, constant((-1,)))
                    planes = tf.slice(flat, constant((0,)), constant((size,)))
                if planes.shape != self._shapes[i]:
                    planes = tf.reshape(planes, constant(self._shapes[i]))
                result.append(tf.cast(planes, self._dtypes[i]))
        return result
