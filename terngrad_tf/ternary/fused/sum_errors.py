"""The error that a second rounding adds to sums of codes."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from terngrad_tf.ternary import codec
from terngrad_tf.ternary.fused import compiled, digit_split
from terngrad_tf.ternary.ordered_sum import sum_in_order


def sum_errors(
    words: tf.Tensor,
    widths: Sequence[int],
    scales: tf.Tensor,
    num_replicas: int,
    *,
    levels: int = 1,
    base: int = 3,
) -> tf.Tensor:
    """Returns the expected squared errors of `requantize_chunk`, summed over each tensor's sums.

    A sum t with the scale c is clipped to `m = min(|t|, c)` and becomes one of the two multiples of
    `c / L` around m, with the mean m. With the fraction f of `m L / c`, the expected squared error
    is `(|t| - m)^2 + (c / L)^2 f (1 - f)`.

    Args:
        words: int32 tensor [K, C], one chunk of each sender's words.
        widths: number of words of each of T >= 1 consecutive tensors; their sum is C.
        scales: float32 tensor [C], c of the sums in each word.
        num_replicas: N, number of replicas in the words.
        levels: L of the codes before and after rounding.
        base: base of the words.

    Returns:
        float32 tensor [T].

    Example:
    >>> words = tf.stack([pack(tf.constant([2, 2, 1]), 3, padding=1)] * 4)
    >>> sum_errors(words, [1], tf.constant([8.0]), 4).numpy().tolist()
    [32.0]
    """
    words = tf.convert_to_tensor(words)
    senders, chunk = compiled.static_shape(words, "words")
    codec.check_base(base)
    by_word = _errors(senders, chunk, base, num_replicas, levels)(words, scales)
    return tf.stack([tf.reduce_sum(errors) for errors in tf.split(by_word, widths)])


@functools.cache
def _errors(senders, chunk, base, num_replicas, levels):
    """Returns a function of words and scales to the sum of the errors in each word, `[chunk]`."""
    del senders, chunk  # select the trace
    split = digit_split.of_base(base)
    cut = digit_split.cutter(base)

    @compiled.compiled
    def errors(parts, scales):
        totals = split.sum_digits(parts) - num_replicas * levels
        totals = tf.reshape(totals, [-1, totals.shape[-1]])
        step = scales * tf.constant(1 / levels, tf.float32)
        steps = tf.math.divide_no_nan(tf.constant(1.0), step)
        result = []
        # Digit by digit: XLA vectorizes these operations, but not a reduction.
        for digit in range(codec.digits_per_word(base)):
            size = tf.cast(tf.abs(totals[digit]), tf.float32)
            kept = tf.minimum(size, scales)
            place = kept * steps
            fraction = place - tf.floor(place)
            result.append(tf.square(size - kept) + step * step * fraction * (1 - fraction))
        return sum_in_order(result)

    return tf.function(lambda words, scales: errors(cut(words), scales), autograph=False)
