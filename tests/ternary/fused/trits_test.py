"""Tests of sums of codes that are rewritten as codes."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf import ternary

SIZE = 1000


def words_of(codes):
    """Returns rows of codes as rows of words."""
    return tf.stack([ternary.pack(row.astype(np.int32) + 1, 4, padding=1) for row in codes])


def codes_of(words):
    return np.stack([ternary.unpack(row, SIZE, 4).numpy() - 1 for row in words])


class TritsTest(tf.test.TestCase):
    @settings(deadline=None, max_examples=8, derandomize=True)
    @given(
        weights=st.sampled_from([(1,), (1, 1), (1,) * 5, (1, 3, 1, 3), (1,) * 14]),
        share=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_trits_are_the_sum_in_balanced_ternary(self, weights, share, seed):
        rng = np.random.default_rng(seed)
        codes = (rng.random([len(weights), SIZE]) < share) * rng.choice([-1, 1], SIZE)
        want = np.dot(weights, codes)
        words = ternary.sum_to_trits(words_of(codes), sum(weights), weights=weights)
        count = ternary.num_trits(sum(weights))
        self.assertEqual(words.shape, [count, -(-SIZE // 16)])
        trits = codes_of(words)
        self.assertContainsSubset(np.unique(trits), [-1, 0, 1])
        values = ternary.trit_values(count)
        self.assertAllEqual(np.dot(values, trits), want)
        # The padding of the last word is 0 too, so it takes no room in a stream.
        filled_up = np.concatenate([want, np.zeros(-SIZE % 16, int)])
        all_trits = [ternary.unpack(row, len(filled_up), 4).numpy() - 1 for row in words]
        self.assertAllEqual(np.dot(values, all_trits), filled_up)
        (decoded,) = ternary.decode(
            words, [0.5], [[SIZE]], [tf.float32], base=4, weights=values, total_bias=sum(values)
        )
        self.assertAllEqual(decoded, 0.5 * want)

    def test_the_number_of_trits_is_minimal_for_the_largest_sum(self):
        for bound in (1, 2, 4, 5, 13, 14, 40, 512):
            count = ternary.num_trits(bound)
            reach = [sum(ternary.trit_values(k)) for k in (count - 1, count)]
            self.assertBetween(bound, reach[0] + 1, reach[1])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
