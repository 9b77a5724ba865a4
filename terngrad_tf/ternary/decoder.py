"""Packed words to gradients, in one pass under XLA."""

import functools

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import codec, compiled


def decode(words, scales, shapes, dtypes, *, base: int = 3, total_bias: int) -> list[tf.Tensor]:
    """Sums the codes of all senders and scales them: `s_t * (sum_k digit_k - total_bias)`.

    Args:
        words: int32 tensor of shape [K, W]: what `encode` returned on each of K senders, or
            sums of it.
        scales: float32 tensor of shape [T]. Divide by N for the mean over N workers. Where a scale
            is NaN or infinite, the whole tensor is NaN.
        shapes: T static shapes.
        dtypes: T floating-point types; the result is computed in float32 and cast.
        base: the base given to `encode`.
        total_bias: number of workers whose codes the words hold in all, since every code was
            stored as code + 1: K for words of single workers.

    Returns:
        List of T tensors.

    Raises:
        ValueError: the arguments do not fit each other.

    Example:
    >>> words = encode([tf.constant([0.5, -0.5])], [0.5], seed=0, step=0, worker=0, num_workers=1)
    >>> decode(words[tf.newaxis], [0.5], [[2]], [tf.float32], total_bias=1)[0].numpy().tolist()
    [0.5, -0.5]
    """
    words = tf.convert_to_tensor(words)
    shapes, dtypes = _static(shapes, dtypes)
    expected = sum(codec.num_words(_size(shape), base) for shape in shapes)
    if words.shape.rank != 2 or words.shape[1] != expected:
        raise ValueError(f"`words` must have shape [senders, {expected}]. Received: {words.shape}")
    if not shapes:
        return []
    run = _decoder(words.shape[0], shapes, dtypes, base, total_bias)
    return list(run(words, tf.cast(scales, tf.float32)))


def decode_sums(
    words,
    scales,
    shapes,
    dtypes,
    *,
    chunk_words: int,
    base_in: int = 3,
    base_out: int,
    total_bias: int,
) -> list[tf.Tensor]:
    """Decodes sums that were made chunk by chunk on M owners.

    The W words of `encode` in base `base_in`, padded to `M * chunk_words`, were cut into M chunks;
    owner m turned chunk m of all senders into row m of `words` with `sum_to_words` (or with
    `ternarize_sums`, where `base_out` is 3 and `total_bias` 1).

    Args:
        words: int32 tensor of shape [M, num_words(digits_per_word(base_in) * chunk_words,
            base_out)].
        scales: float32 tensor of shape [T], as for `decode`.
        shapes: T static shapes.
        dtypes: T floating-point types.
        chunk_words: words of one chunk.
        base_in: base of the words that were summed.
        base_out: base of the sums.
        total_bias: what to subtract from each digit: the number of workers summed.

    Returns:
        List of T tensors, `s_t * (digit - total_bias)`.

    Raises:
        ValueError: the arguments do not fit each other.
    """
    words = tf.convert_to_tensor(words)
    shapes, dtypes = _static(shapes, dtypes)
    needed = sum(codec.num_words(_size(shape), base_in) for shape in shapes)
    row = codec.num_words(codec.digits_per_word(base_in) * chunk_words, base_out)
    if words.shape.rank != 2 or words.shape[1] != row or words.shape[0] * chunk_words < needed:
        raise ValueError(
            f"`words` must have shape [owners, {row}] with owners * chunk_words >= {needed}."
            f" Received: shape {words.shape}, chunk_words={chunk_words}"
        )
    if not shapes:
        return []
    run = _sums_decoder(words.shape[0], shapes, dtypes, chunk_words, base_in, base_out, total_bias)
    return list(run(words, tf.cast(scales, tf.float32)))


def _size(shape) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _static(shapes, dtypes):
    shapes = tuple(tuple(tf.TensorShape(shape).as_list()) for shape in shapes)
    dtypes = tuple(tf.as_dtype(dtype) for dtype in dtypes)
    if len(shapes) != len(dtypes):
        raise ValueError(
            f"`dtypes` must have one entry a shape ({len(shapes)}). Received: {len(dtypes)}"
        )
    return shapes, dtypes


def _scaled(digits, scale, shape, dtype, total_bias):
    """Flat digits, padding included, to the tensor."""
    scale = tf.where(tf.math.is_finite(scale), scale, tf.constant(np.nan, tf.float32))
    codes = tf.cast(digits[: _size(shape)], tf.int32) - total_bias
    return tf.reshape(tf.cast(scale * tf.cast(codes, tf.float32), dtype), shape)


@functools.cache
def _decoder(senders, shapes, dtypes, base, total_bias):
    def run(words, scales):
        words = tf.bitcast(words, tf.uint32)
        results, start = [], 0
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
            width = codec.num_words(_size(shape), base)
            mine = words[:, start : start + width]
            start += width
            planes = sum_planes([mine[k] for k in range(senders)], base)
            results.append(_scaled(tf.concat(planes, 0), scales[i], shape, dtype, total_bias))
        return results

    return compiled.compiled(run)


def sum_planes(rows, base: int) -> list[tf.Tensor]:
    """Sums over the rows of each digit, lowest digit first; uint32."""
    return [
        tf.add_n([codec.plane(row, digit, base) for row in rows])
        for digit in range(codec.digits_per_word(base))
    ]


@functools.cache
def _sums_decoder(owners, shapes, dtypes, chunk_words, base_in, base_out, total_bias):
    count = codec.digits_per_word(base_in)

    def run(words, scales):
        words = tf.bitcast(words, tf.uint32)
        planes = [
            codec.plane(words, digit, base_out) for digit in range(codec.digits_per_word(base_out))
        ]
        sums = tf.concat(planes, 1)[:, : count * chunk_words]
        sums = tf.transpose(tf.reshape(sums, [owners, count, chunk_words]), [1, 0, 2])
        sums = tf.reshape(sums, [count, owners * chunk_words])
        results, start = [], 0
        for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
            width = codec.num_words(_size(shape), base_in)
            digits = tf.reshape(sums[:, start : start + width], [-1])
            start += width
            results.append(_scaled(digits, scales[i], shape, dtype, total_bias))
        return results

    return compiled.compiled(run)
