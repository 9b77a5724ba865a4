"""Splits words into digits with 32-bit products: a word into parts, a part into digits.

A part holds `size` digits and is below 2**16. Digit j of a part p is `floor(base * frac(p /
base**(j+1)))`, and the fraction, in units of 2**-32, is the low half of the product with
`ceil(2**32 / base**(j+1))`. Unlike division by a constant, the code is the same for every j, so one
short loop computes all digits.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import codec
from terngrad_tf.ternary.fused import compiled


@dataclasses.dataclass(frozen=True)
class DigitSplit:
    """Split of the words of a base into parts and digits.

    Attributes:
        count: number of parts of a word.
        size: number of digits of a part; `count * size` may exceed the digits of a word.
    """

    base: int
    count: int
    size: int

    @property
    def dtype(self) -> tf.DType:
        """Dtype that holds a part and any digit."""
        return tf.uint16 if self.base**self.size <= 2**16 else tf.uint32

    def cut(self, words: tf.Tensor) -> tf.Tensor:
        """Cuts words, int32 `[K, W]`, into parts, `[K, count, W]` of type `dtype`."""
        rest = tf.bitcast(words, tf.uint32)
        radix = tf.constant(self.base**self.size, tf.uint32)
        result = []
        for _ in range(self.count - 1):
            result.append(rest % radix)
            rest = rest // radix
        return tf.stack([tf.cast(part, self.dtype) for part in (*result, rest)], axis=1)

    def digits(self, part: tf.Tensor) -> tf.Tensor:
        """Returns the digits, uint32 [count, size, W], of one sender's parts [count, W].

        Digit j of a word is at `[j // size, j % size]`; places beyond `digits_per_word(base)` hold
        zeros.
        """
        part = tf.cast(part, tf.uint32)[:, tf.newaxis, :]
        if self.size == 1:
            return part
        bits = self.base.bit_length()
        powers = [self.base ** (digit + 1) for digit in range(self.size)]
        multipliers = np.array([[-(-(2**32) // power)] for power in powers], np.uint32)
        fraction = part * tf.constant(multipliers)
        high = tf.bitwise.right_shift(fraction, tf.constant(bits, tf.uint32))
        high = (high + tf.constant(1, tf.uint32)) * tf.constant(self.base, tf.uint32)
        return tf.bitwise.right_shift(high, tf.constant(32 - bits, tf.uint32))

    def sum_digits(self, parts: tf.Tensor, weights: Sequence[int] | None = None) -> tf.Tensor:
        """Sums K senders' weighted digits: `[K, count, W]` to int32 `[count, size, W]`."""
        total = None
        for sender, weight in enumerate(weights or [1] * parts.shape[0]):
            digits = self.digits(parts[sender])
            digits = digits if weight == 1 else digits * tf.constant(weight, tf.uint32)
            total = digits if total is None else total + digits
        return tf.bitcast(total, tf.int32)


def _fits(base: int, size: int) -> bool:
    """Returns True if the digits of a part of `size` digits are exact.

    The rounded constant adds less than `base**size` units of 2**-32 to a fraction, and dropping the
    low bits at most `2**bits` more; the next fraction is `2**32 / base**size` away.
    """
    largest = base**size
    return largest <= 2**16 and largest * (largest + (1 << base.bit_length())) <= 2**32


@functools.cache
def of_base(base: int) -> DigitSplit:
    """Returns the split into the fewest parts of equal size."""
    digits = codec.digits_per_word(base)
    size = 1
    while _fits(base, size + 1):
        size += 1
    count = -(-digits // size)
    return DigitSplit(base, count, -(-digits // count))


@functools.cache
def cutter(base: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function that cuts words of a base into parts, compiled once for all users."""
    return compiled.compiled(of_base(base).cut)
