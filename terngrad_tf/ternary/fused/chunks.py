"""The middle of an all-to-all exchange: each owner adds the digits of one chunk of all senders."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import codec, quantizer, random_bits
from terngrad_tf.ternary import scales as scale_rules
from terngrad_tf.ternary.fused import compiled, digit_split, tiles
from terngrad_tf.ternary.ordered_sum import sum_in_order

# Tensor indices start at 0; the second rounding has separate sequences.
_SECOND_HOP = -1


def reduce_chunk(words: tf.Tensor, base_in: int = 3, *, base_out: int) -> tf.Tensor:
    """Adds the digits of K senders, place by place, and packs the sums.

    Args:
        words: int32 tensor [K, C], one chunk of each sender's words.
        base_in: base of the words.
        base_out: base of the sums, at least `K * (base_in - 1) + 1`.

    Returns:
        int32 tensor [num_words(digits_per_word(base_in) * C, base_out)], plane-major: digit j of
        word i is element `j * C + i`.

    Raises:
        ValueError: `base_out` is too small.

    Example:
    >>> words = tf.stack([pack(tf.constant([0, 2]), 3), pack(tf.constant([1, 2]), 3)])
    >>> sums = reduce_chunk(words, base_out=5)
    >>> unpack(sums, digits_per_word(3), base=5).numpy().tolist()[:2]
    [1, 4]
    """
    words = tf.convert_to_tensor(words)
    senders, chunk = compiled.static_shape(words, "words")
    codec.check_base(base_in)
    if base_out < senders * (base_in - 1) + 1:
        raise ValueError(
            f"`base_out` must be at least {senders * (base_in - 1) + 1} for the sums of {senders}"
            f" senders in base {base_in}. Received: base_out={base_out}"
        )
    return _summer(senders, chunk, base_in, base_out)(words)


@functools.cache
def _summer(senders, chunk, base_in, base_out):
    del senders  # selects the trace
    split = digit_split.of_base(base_in)
    cut = digit_split.cutter(base_in)

    @compiled.compiled
    def add(parts):
        return tf.cast(split.sum_digits(parts), digit_split.of_base(base_out).dtype)

    pack = compiled.compiled(functools.partial(pack_digits, base=base_out))

    def run(words):
        return pack(first_digits(add(cut(words)), chunk, base_in))

    return tf.function(run, autograph=False)


def first_digits(digits: tf.Tensor, chunk: int, base: int) -> tf.Tensor:
    """Flattens digits `[count, size, chunk]`, without the places that no word has."""
    return tf.reshape(digits, [-1])[: codec.digits_per_word(base) * chunk]


def pack_digits(digits: tf.Tensor, base: int) -> tf.Tensor:
    """`codec.pack` in tiles that the compiler can vectorize; the padding is undefined."""
    width = codec.num_words(digits.shape[0], base)
    planes = [
        tf.cast(plane, tf.uint32)
        for plane in tiles.digit_planes(digits, codec.digits_per_word(base), width)
    ]
    words = tf.reshape(codec.join_planes(planes, base), [-1])[:width]
    return tf.bitcast(words, tf.int32)


def sum_scales(
    words: tf.Tensor,
    widths: Sequence[int],
    num_replicas: int,
    *,
    clip: bool,
    levels: int = 1,
    base: int = 3,
) -> tf.Tensor:
    """Computes the scales for `requantize_chunk`: one for the sums of each tensor in a chunk.

    The scale is the largest magnitude of a sum, or, with `clip`, that of `ScaleRule("auto")` for a
    single replica, if smaller: more replicas' sums lie further below the largest, and rounding adds
    more variance.

    Args:
        words: int32 tensor [K, C], one chunk of each sender's words, padded with codes that are 0.
        widths: number of words of each of T >= 1 consecutive tensors; their sum is C.
        num_replicas: N, number of replicas in the words.
        clip: whether sums may be clipped.
        levels: L of the codes before and after rounding.
        base: base of the words.

    Returns:
        float32 tensor [T]; 0 for tensors without nonzero sums.

    Raises:
        ValueError: the sum of `widths` is not C.

    Example:
    >>> words = tf.stack([pack(tf.constant([2, 2, 1]), 3, padding=1)] * 4)
    >>> sum_scales(words, [1, 0], 4, clip=False).numpy().tolist()
    [4.0, 0.0]
    """
    words = tf.convert_to_tensor(words)
    senders, chunk = compiled.static_shape(words, "words")
    codec.check_base(base)
    if not widths or sum(widths) != chunk:
        raise ValueError(f"`widths` must add up to the {chunk} words. Received: widths={widths}")
    by_word = _sum_statistics(senders, chunk, base, num_replicas * levels)(words)
    largest, sizes, squares = (tf.split(values, widths) for values in tf.unstack(by_word))
    largest = tf.stack([tf.reduce_max(values) for values in largest])

    def totals(parts):
        # Sums of whole numbers are exact in any order.
        parts = [tf.reduce_sum(tf.cast(values, tf.float64)) for values in parts]
        return tf.cast(tf.stack(parts), tf.float32)

    # The rule needs only ratios of means, so sums serve as well.
    moments = scale_rules.Moments(
        largest=tf.maximum(largest, 0.0),  # the maximum of no elements is -inf
        mean_size=totals(sizes) if clip else largest,
        mean_square=totals(squares) if clip else largest,
        deviation=tf.zeros_like(largest),
    )
    rule = scale_rules.ScaleRule(scale_rules.AUTO if clip else 0.0, 1, levels)
    return rule.scales(moments)


@functools.cache
def _sum_statistics(senders, chunk, base, largest):
    """Returns a function of words to `[3, chunk]`: largest size, sizes and squares of the sums."""
    del senders, chunk  # select the trace
    split = digit_split.of_base(base)
    cut = digit_split.cutter(base)

    @compiled.compiled
    def statistics(parts):
        totals = split.sum_digits(parts) - largest
        totals = tf.reshape(totals, [-1, totals.shape[-1]])
        # Digit by digit: XLA vectorizes these operations, but not a reduction.
        sizes = [
            tf.cast(tf.abs(totals[digit]), tf.float32)
            for digit in range(codec.digits_per_word(base))
        ]
        squares = [size * size for size in sizes]
        return tf.stack(
            [functools.reduce(tf.maximum, sizes), sum_in_order(sizes), sum_in_order(squares)]
        )

    return tf.function(lambda words: statistics(cut(words)), autograph=False)


def requantize_chunk(
    words: tf.Tensor,
    num_replicas: int,
    *,
    seed: int,
    step: Any,
    stream: Any,
    levels: int = 1,
    base: int = 3,
    base_out: int = 3,
    scales: tf.Tensor | None = None,
) -> tf.Tensor:
    """Rounds the sums of all replicas' codes to one code.

    With the sum `t = sum_k (digit_k - L)` and its scale c, the new code is `floor(clip(t / c, -1,
    1) * L + u)`, packed as digit = code + L in `base_out`. `decode_chunks` with `total_bias=L` and
    `c / L` as `owner_scales` estimates the sum, without bias if |t| <= c.

    Args:
        words: int32 tensor [K, C], one chunk of each sender's words.
        num_replicas: N, number of replicas in the words.
        seed, step: see `ternarize`.
        stream: number of the chunk, integer or scalar int32 tensor; selects its random bits.
        levels: L of the codes before and after rounding.
        base: base of the words.
        base_out: base of the new words, at least `2 * L + 1`.
        scales: float32 tensor [C], c of the sums in each word, as from `sum_scales`. Default: N L,
            the largest possible sum; the code is then one of the replicas' mean.

    Returns:
        int32 tensor [num_words(digits_per_word(base) * C, base_out)], plane-major as in
        `reduce_chunk`; in the layout of `words` if the bases are equal.

    Raises:
        ValueError: `num_replicas` or `levels` is out of range.
    """
    words = tf.convert_to_tensor(words)
    senders, chunk = compiled.static_shape(words, "words")
    codec.check_base(base)
    rounding = quantizer.Rounding("independent", num_replicas, levels)
    if scales is None:
        scales = tf.constant(num_replicas * levels, tf.float32)
    return _rounder(senders, chunk, base, base_out, rounding)(
        words,
        scales,
        compiled.scalar(seed, tf.int64),
        compiled.scalar(step, tf.int64),
        compiled.scalar(stream, tf.int32),
    )


@compiled.compiled
def _keys(seed, step, stream):
    """Returns the keys of the second rounding, from one trace for chunks of all sizes."""
    return random_bits.key_schedule(seed, step, _SECOND_HOP, stream)


@functools.cache
def _rounder(senders, chunk, base, base_out, rounding):
    del senders  # selects the trace
    split = digit_split.of_base(base)
    cut = digit_split.cutter(base)
    largest = rounding.num_replicas * rounding.levels

    @compiled.compiled
    def rounded(parts, scales, seed, step, stream):
        totals = split.sum_digits(parts) - largest
        element_key, mix_key = _keys(seed, step, stream)
        rows = [totals.shape[0] * totals.shape[1], totals.shape[2]]
        elements = tf.reshape(random_bits.numbers_from(element_key, rows), totals.shape)
        codes = rounding.codes(
            tf.cast(totals, tf.float32),
            rounding.factor(scales),
            random_bits.fmix32(elements, mix_key),
        )
        return tf.cast(codes + rounding.levels, tf.uint16)

    pack = compiled.compiled(functools.partial(pack_digits, base=base_out))

    def run(words, scales, seed, step, stream):
        return pack(first_digits(rounded(cut(words), scales, seed, step, stream), chunk, base))

    return tf.function(run, autograph=False)
