"""Tests of digits in words."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.ternary import digits_per_word, num_words, pack, unpack


def oracle(digits, base):
    """Returns words as Python integers, computed one digit at a time."""
    count = digits_per_word(base)
    width = -(-len(digits) // count)
    words = [0] * width
    for element, digit in enumerate(digits):
        words[element % width] += int(digit) * base ** (element // width)
    return np.array(words, np.uint64).astype(np.uint32).view(np.int32)


class CodecTest(tf.test.TestCase):
    def test_digits_per_word_is_the_largest_that_fits(self):
        known = {2: 32, 3: 20, 4: 16, 5: 13, 9: 10, 17: 7, 8193: 2, 65536: 2, 65537: 1, 2**31: 1}
        self.assertEqual({base: digits_per_word(base) for base in known}, known)
        for base in range(2, 8194):
            count = digits_per_word(base)
            self.assertLessEqual(base**count, 2**32)
            self.assertGreater(base ** (count + 1), 2**32)

    def test_number_of_words(self):
        sizes = (0, 1, 19, 20, 21, 40, 41)
        self.assertEqual([num_words(n, 3) for n in sizes], [0, 1, 1, 1, 2, 2, 3])

    def test_illegal_bases_are_refused(self):
        for base in (1, 0, -3, 2**31 + 1, 3.0, "3"):
            with self.assertRaisesRegex(ValueError, "`base` must be an integer from 2 to 2"):
                pack(tf.zeros([4], tf.int32), base)

    def test_words_of_another_shape_or_type_are_refused(self):
        for words in (tf.zeros([3], tf.int32), tf.zeros([1, 2], tf.int32), tf.zeros([2], tf.int64)):
            refused = (
                rf"`words` must be int32 \[2\].*Received: {words.dtype.name} \({words.shape[0]}"
            )
            with self.assertRaisesRegex(ValueError, refused):
                unpack(words, 21, 3)

    def test_digits_that_are_no_vector_are_refused(self):
        for digits, shape in ([[1, 2], [0, 1]], r"\(2, 2\)"), (1, r"\(\)"):
            with self.assertRaisesRegex(ValueError, f"must be a vector. Received: shape={shape}"):
                pack(tf.constant(digits), 3)

    @settings(deadline=None, max_examples=60, derandomize=True)
    @given(
        size=st.integers(0, 300),
        replicas=st.integers(1, 4096),
        seed=st.integers(0, 2**32 - 1),
        two_bit=st.booleans(),
    )
    def test_pack_equals_the_definition_and_unpack_is_its_inverse(
        self, size, replicas, seed, two_bit
    ):
        base = 4 if two_bit else 2 * replicas + 1
        digits = np.random.default_rng(seed).integers(0, base, size, np.int32)
        words = pack(digits, base)
        self.assertEqual(words.dtype, tf.int32)
        self.assertAllEqual(words, oracle(digits, base))
        self.assertAllEqual(unpack(words, size, base), digits)

    def test_the_largest_words_survive(self):
        for base in (2, 3, 4, 5, 7, 255, 256, 65535, 65536, 2**31):
            digits = np.full([3 * digits_per_word(base) - 1], base - 1, np.int64)
            self.assertAllEqual(
                unpack(pack(digits, base), digits.size, base), digits.astype(np.int32)
            )

    def test_padding_is_the_given_digit(self):
        words = pack(tf.constant([2]), 4, padding=1)
        self.assertAllEqual(unpack(words, 16, 4), [2] + 15 * [1])

    def test_sums_of_packed_words_are_words_of_sums(self):
        rng = np.random.default_rng(0)
        for replicas in (1, 2, 5, 64, 4096):
            base, size = 2 * replicas + 1, 47
            some = rng.integers(0, 3, [min(replicas, 16), size], np.int32)
            # The other replicas all have the largest code, so every lane reaches its maximum.
            sums = some.sum(0) + 2 * (replicas - len(some))
            rest = (replicas - len(some)) * pack(np.full([size], 2, np.int32), base)
            words = tf.add_n([pack(row, base) for row in some]) + rest
            self.assertAllEqual(unpack(words, size, base), sums)

    def test_eager_graph_and_xla_pack_the_same(self):
        digits = tf.constant(np.random.default_rng(1).integers(0, 3, 1001, np.int32))
        words = pack(digits, 3)
        for jit in (False, True):
            self.assertAllEqual(tf.function(pack, jit_compile=jit)(digits, 3), words)
            unpacked = tf.function(unpack, jit_compile=jit)(words, 1001, 3)
            self.assertAllEqual(unpacked, digits)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
