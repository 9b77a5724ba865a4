"""Writes sums of codes as codes: the digits of a sum in balanced ternary are -1, 0 and 1.

    v = t_0 + 3 t_1 + 9 t_2 + ...        t_k in {-1, 0, 1}

K digits (trits) hold every sum from `-(3**K - 1) / 2` to `(3**K - 1) / 2`: one trit for 1 replica,
two for 4, three for 13. The trits of one place form words like `encode`'s; those of sparse sums are
sparse, for `compress`.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf

from terngrad_tf.ternary.fused import chunks, compiled, digit_split
from terngrad_tf.ternary.fused.streams.sparse_units import BASE


def num_trits(bound: int) -> int:
    """Returns the number of trits of sums from `-bound` to `bound`.

    Example:
    >>> [num_trits(bound) for bound in (1, 2, 4, 5, 13, 14)]
    [1, 2, 2, 3, 3, 4]
    """
    count = 1
    while 3**count < 2 * bound + 1:
        count += 1
    return count


def trit_values(count: int) -> list[int]:
    """Returns the value of a 1 at each of `count` places, lowest first."""
    return [3**place for place in range(count)]


def sum_to_trits(
    words: tf.Tensor, bound: int, *, weights: Sequence[int] | None = None
) -> tf.Tensor:
    """Adds the codes of R rows of words element by element and writes the sums as trits.

    Args:
        words: int32 tensor [R, C]: words of `encode` in base 4.
        bound: the sums lie between `-bound` and `bound`.
        weights: R positive integers, factors of the codes of each row. Default 1.

    Returns:
        int32 tensor [num_trits(bound), C]: words of the trits, lowest place first, laid out like
        the input. `decode` with the weights `trit_values` gives the sums.

    Example:
    >>> words = tf.stack([pack(tf.constant([2, 0, 1]), 4), pack(tf.constant([2, 2, 0]), 4)])
    >>> low, high = tf.unstack(sum_to_trits(words, bound=2))
    >>> unpack(low, 3, 4).numpy().tolist(), unpack(high, 3, 4).numpy().tolist()
    ([0, 1, 0], [2, 1, 1])
    """
    words = tf.convert_to_tensor(words)
    rows, columns = compiled.static_shape(words, "words")
    weights = tuple(weights) if weights is not None else (1,) * rows
    return _adder(columns, weights, num_trits(bound))(words)


@functools.cache
def _adder(columns, weights, count):
    split = digit_split.of_base(BASE)
    values = trit_values(count)
    cut = digit_split.cutter(BASE)

    @compiled.compiled
    def trits(parts):
        # Digits are codes plus 1; adding 1 at each place gives plain digits, 0 to 2.
        sums = split.sum_digits(parts, weights) + (sum(values) - sum(weights))
        sums, three = tf.bitcast(sums, tf.uint32), tf.constant(3, tf.uint32)
        places = [sums // tf.constant(value, tf.uint32) % three for value in values]
        return [tf.cast(digits, tf.uint16) for digits in places]

    pack = compiled.compiled(functools.partial(chunks.pack_digits, base=BASE))

    def run(words):
        return tf.stack([pack(chunks.first_digits(t, columns, BASE)) for t in trits(cut(words))])

    return tf.function(run, autograph=False)
