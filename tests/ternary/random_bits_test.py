"""Tests of the counter-based random words."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.ternary import random_words

MASK = 0xFFFFFFFF
PINNED = (
    [1266222509, 3451405553, 3617710702, 667899273],
    [2767895749, 2319913425, 1685362063, 1197018883],
)


def fmix32(x, key=0):
    x ^= x >> 16
    x = (x * 0x85EBCA6B & MASK) ^ key
    x ^= x >> 13
    x = x * 0xC2B2AE35 & MASK
    return x ^ x >> 16


def key(start, seed, step, tensor, stream):
    state = start
    for value in (seed, seed >> 32, step, step >> 32, tensor, stream):
        state = fmix32(state ^ (value & MASK)) + 0x9E3779B9 & MASK
    return state


def oracle(num_elements, *numbers):
    """Returns the words, computed one by one in Python integers."""
    first, mix = key(0x243F6A88, *numbers), key(0x85A308D3, *numbers)
    return [fmix32(element + first & MASK, mix) for element in range(num_elements)]


class RandomWordsTest(tf.test.TestCase):
    def test_words_are_pinned(self):
        # A run resumed under a later release must draw the same bits: never change these.
        self.assertAllEqual(random_words(4, 0, 0, 0, 0), PINNED[0])
        self.assertAllEqual(random_words(4, 2**40 + 5, 2**33 + 7, 160, 4095), PINNED[1])

    def test_words_equal_the_definition_in_python_integers(self):
        for numbers in [(0, 0, 0, 0), (-1, 12, 3, 1), (2**63 - 1, 2**40, 7, 9), (5, 1, -1, 2)]:
            self.assertAllEqual(random_words(50, *numbers), oracle(50, *numbers))

    def test_eager_graph_and_xla_give_the_same_bits(self):
        step = tf.constant(2**33 + 1, tf.int64)
        eager = random_words(1000, 3, step, 4, 5)
        for jit in (False, True):
            compiled = tf.function(random_words, jit_compile=jit, autograph=False)
            self.assertAllEqual(compiled(1000, 3, step, 4, 5), eager)
            tensors = [tf.constant(v) for v in (3, 4, 5)]
            self.assertAllEqual(compiled(1000, tensors[0], step, *tensors[1:]), eager)

    def test_int32_and_int64_steps_agree(self):
        for dtype in (tf.int32, tf.int64):
            self.assertAllEqual(
                random_words(9, 1, tf.constant(77, dtype), 2, 3), random_words(9, 1, 77, 2, 3)
            )

    def test_every_number_matters(self):
        numbers = (1, 2, 3, 4)
        base = random_words(4096, *numbers).numpy()
        for position in range(4):
            for change in (1, 2, 1000):
                other = list(numbers)
                other[position] += change
                same = np.sum(random_words(4096, *other).numpy() == base)
                self.assertLessEqual(same, 1, f"argument {position} + {change}")

    def test_sequences_are_not_shifts_of_each_other(self):
        base, other = (random_words(2**16, 0, step, 0, 0).numpy() for step in (0, 1))
        # Chance gives about one equal pair among 2**32, and never 30.
        common = np.intersect1d(base, other)
        self.assertLess(common.size, 30)

    def test_words_are_uniform_in_every_byte(self):
        words = random_words(2**18, 0, 0, 0, 0).numpy()
        for shift in (0, 8, 16, 24):
            counts = np.bincount((words >> shift) & 255, minlength=256)
            chi2 = np.sum((counts - 1024.0) ** 2) / 1024
            # 255 degrees of freedom: mean 255, standard deviation 22.6. The bound is six
            # deviations.
            self.assertAllInRange([chi2], 255 - 136, 255 + 136)

    def test_every_bit_and_neighbouring_bits_are_balanced(self):
        words = random_words(2**18, 1, 2, 3, 4).numpy()
        bound = 6 * 0.5 / 2**9
        for bit in range(32):
            ones = (words >> bit) & 1
            self.assertNear(ones.mean(), 0.5, bound)
            self.assertNear((ones[1:] == ones[:-1]).mean(), 0.5, bound)

    def test_zero_elements_give_no_words_and_negative_numbers_are_refused(self):
        self.assertEqual(random_words(0, 0, 0, 0, 0).shape, [0])
        with self.assertRaisesRegex(ValueError, "`num_elements` must be.*Received: -1"):
            random_words(-1, 0, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
