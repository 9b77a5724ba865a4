"""Units of a sparse stream: their elements, integers and bits."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import codec

BASE = 4
# A word of zero codes: digits are code + 1.
ZEROS = 0x55555555
# A multiple for which bitmaps are whole bytes.
MULTIPLE = 32

_and, _or, _xor = tf.bitwise.bitwise_and, tf.bitwise.bitwise_or, tf.bitwise.bitwise_xor
_left, _right = tf.bitwise.left_shift, tf.bitwise.right_shift


@dataclasses.dataclass(frozen=True)
class Units:
    """Units of `2**log2` elements.

    Two bits store a code: nonzero, and positive. A unit is one integer with both bits of each
    element side by side, or two: all first bits, all second.

    Attributes:
        log2: 3, 4 or 6.
        dtype: unsigned dtype of a unit's integers.
        planes: number of integers per unit.
    """

    log2: int
    dtype: tf.DType
    planes: int

    def count(self, num_words: int) -> int:
        """Returns the number of units of `num_words` words."""
        return num_words * codec.digits_per_word(BASE) // 2**self.log2

    @property
    def code_bits(self) -> int:
        """Bits of a code in a level: its place, its sign and whether the unit holds more."""
        return self.log2 + 2

    def constant(self, value: int) -> tf.Tensor:
        return tf.constant(value, self.dtype)

    def from_words(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Turns int32 words into bits of nonzero and of positive elements, `[units]` each."""
        bits = tf.bitcast(_xor(words, tf.constant(ZEROS, tf.int32)), tf.uint32)
        evens = tf.constant(ZEROS, tf.uint32)
        present = _and(bits, evens)
        positive = _and(_right(bits, tf.constant(1, tf.uint32)), evens)
        return self._gathered(present), self._gathered(positive)

    def _gathered(self, bits):
        """Collects every other bit of words, one integer per unit."""
        if self.planes == 1:
            return (
                bits if self.dtype == tf.uint32 else tf.reshape(tf.bitcast(bits, self.dtype), [-1])
            )
        first, second, third, fourth = tf.unstack(tf.reshape(bits, [4, -1]))
        one = tf.constant(1, tf.uint32)
        low = tf.cast(_or(first, _left(second, one)), tf.uint64)
        high = tf.cast(_or(third, _left(fourth, one)), tf.uint64)
        return _or(low, _left(high, tf.constant(32, tf.uint64)))

    def _scattered(self, integers):
        """Inverse of `_gathered` for units of four words."""
        evens = tf.constant(ZEROS, tf.uint32)
        halves = [integers, _right(integers, tf.constant(32, tf.uint64))]
        words = []
        for half in halves:
            half = tf.cast(_and(half, tf.constant(0xFFFFFFFF, tf.uint64)), tf.uint32)
            words += [_and(half, evens), _and(_right(half, tf.constant(1, tf.uint32)), evens)]
        return tf.concat(words, 0)

    def to_words(self, integers: tf.Tensor) -> tf.Tensor:
        """Inverse of `join` and `from_words`: `[units, planes]` to int32 words."""
        if self.dtype == tf.uint32:
            bits = integers[:, 0]
        elif self.planes == 1:
            bits = tf.bitcast(tf.reshape(integers, [-1, 2]), tf.uint32)
        else:
            present, positive = self._scattered(integers[:, 0]), self._scattered(integers[:, 1])
            bits = _or(present, _left(positive, tf.constant(1, tf.uint32)))
        return _xor(tf.bitcast(bits, tf.int32), tf.constant(ZEROS, tf.int32))

    def join(self, present: tf.Tensor, positive: tf.Tensor) -> tf.Tensor:
        """Joins both kinds of bits into the integers of units, `[n, planes]`."""
        if self.planes == 1:
            return _or(present, _left(positive, self.constant(1)))[:, tf.newaxis]
        return tf.stack([present, positive], axis=1)

    def place(self, lowest: tf.Tensor) -> tf.Tensor:
        """Returns the place, uint8, of the only nonzero element."""
        below = tf.cast(tf.raw_ops.PopulationCount(x=lowest - self.constant(1)), tf.uint8)
        return below if self.planes == 2 else _right(below, tf.constant(1, tf.uint8))

    def has_more(self, codes: tf.Tensor) -> tf.Tensor:
        return codes >= tf.constant(2 ** (self.log2 + 1), tf.uint8)

    def integers(self) -> tf.Tensor:
        """Returns the integers of a unit with one code: a row for every code of a level."""
        codes = np.arange(2**self.code_bits, dtype=np.uint64)
        place, is_positive = codes % 2**self.log2, codes >> np.uint64(self.log2) & np.uint64(1)
        one = np.uint64(1)
        if self.planes == 2:
            rows = np.stack([one << place, is_positive << place], axis=1)
        else:
            rows = ((one + 2 * is_positive) << (2 * place))[:, np.newaxis]
        return tf.constant(rows.astype(self.dtype.as_numpy_dtype))

    def pack(self, codes: tf.Tensor) -> tf.Tensor:
        """Packs codes, uint8 `[n]`, into bytes: one each, or `code_bits` bytes for 8 codes."""
        bits = self.code_bits
        if bits == 8:
            return codes
        planes = tf.reshape(tf.pad(codes, [[0, -tf.size(codes) % 8]]), [8, -1])
        planes = tf.unstack(tf.cast(planes, tf.uint64))
        shifted = [_left(plane, tf.constant(bits * j, tf.uint64)) for j, plane in enumerate(planes)]
        return tf.reshape(tf.bitcast(functools.reduce(_or, shifted), tf.uint8)[:, :bits], [-1])

    def unpack(
        self, stream: tf.Tensor, start: tf.Tensor, count: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `count` codes from byte `start`, and the position after them."""
        bits = self.code_bits
        if bits == 8:
            return stream[start : start + count], start + count
        end = start + -(-count // 8) * bits
        groups = tf.pad(tf.reshape(stream[start:end], [-1, bits]), [[0, 0], [0, 8 - bits]])
        groups, mask = tf.bitcast(groups, tf.uint64), tf.constant(2**bits - 1, tf.uint64)
        planes = [_and(_right(groups, tf.constant(bits * j, tf.uint64)), mask) for j in range(8)]
        return tf.cast(tf.concat(planes, 0), tf.uint8)[:count], end


# Parts of a word, a word, and four words per unit; headers count from 1.
SIZES = (Units(3, tf.uint16, 1), Units(4, tf.uint32, 1), Units(6, tf.uint64, 2))
