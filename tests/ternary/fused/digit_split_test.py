"""Tests of fast splitting of words into digits."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.ternary import codec, digits_per_word
from terngrad_tf.ternary.fused import digit_split


class DigitSplitTest(tf.test.TestCase):
    """Compares splitting with division."""

    def test_every_part_of_every_base_gives_its_digits(self):
        for base in (*range(2, 70), 127, 129, 254, 255, 256, 257, 4097, 8193, 65535, 65536, 65537):
            split = digit_split.of_base(base)
            self.assertGreaterEqual(split.count * split.size, digits_per_word(base))
            part = np.arange(min(base**split.size, 2**16), dtype=np.uint32)
            digits = split.digits(tf.constant(part[np.newaxis])).numpy()[0]
            for place in range(split.size):
                self.assertAllEqual(digits[place], part // base**place % base, f"base {base}")

    def test_cut_words_equal_division(self):
        rng = np.random.default_rng(2)
        for base in (2, 3, 4, 5, 7, 17, 8193, 2**31):
            split, count = digit_split.of_base(base), digits_per_word(base)
            words = rng.integers(0, base**count, [2, 40], np.uint64)
            words[:, :2] = [0, base**count - 1]
            signed = tf.constant(words.astype(np.uint32).view(np.int32))
            digits = [tf.reshape(split.digits(row), [-1, 40])[:count] for row in split.cut(signed)]
            planes = [codec.plane(tf.bitcast(signed, tf.uint32), j, base) for j in range(count)]
            self.assertAllEqual(tf.stack(digits, 1), tf.stack(planes))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
