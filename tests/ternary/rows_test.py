"""Rounded rows are unbiased, have the error of rotated blocks, and use the stated words."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.ternary import rounding_noise, rows

SHAPES = ((1, 1), (7, 16), (33, 64), (3, 700))


def by_length(count, width, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return x[np.argsort(-np.linalg.norm(x, axis=1))]


@functools.cache
def rounded(width, levels):
    """Returns a function that rounds rows in a step."""

    @tf.function(input_signature=[tf.TensorSpec([None, width]), tf.TensorSpec([], tf.int64)])
    def apply(x, step):
        how = {"levels": levels, "seed": 3, "step": step, "tensor": 4}
        words = rows.encode_rows(x, member=1, **how)
        count = rows.num_row_words(tf.shape(x)[0], width, levels)
        tf.debugging.assert_equal(tf.size(words), count)
        return rows.decode_rows(words[tf.newaxis], tf.shape(x)[0], width, **how)[0]

    return apply


class RowsTest(tf.test.TestCase, parameterized.TestCase):
    @pytest.mark.slow
    def test_rounding_is_unbiased_and_has_the_noise_of_a_rotated_block(self):
        self.check_rounding(1)

    @parameterized.parameters(7, 127)
    @pytest.mark.slow
    def test_rounding_to_more_levels_is_unbiased_and_has_less_noise(self, levels):
        self.check_rounding(levels)

    def check_rounding(self, levels):
        for count, width in SHAPES:
            x, apply = by_length(count, width), rounded(width, levels)
            steps = 200
            got = np.stack([apply(x, tf.constant(step, tf.int64)) for step in range(steps)])
            size = np.sum(np.square(x))
            error = np.sum(np.square(got - x)) / steps / size
            # Padded blocks have less noise than full blocks.
            of_scale = rounding_noise(levels, 1, "independent") * self.scale_of_rms(levels) ** 2
            self.assertLess(error, 1.1 * of_scale)
            if count * width % rows.BLOCK == 0:
                self.assertGreater(error, 0.8 * of_scale)
            # Averaging over 200 steps divides the noise by 200.
            bias = np.sum(np.square(got.mean(0) - x)) / size
            self.assertLess(bias, 2 * error / steps + 1e-12)

    def scale_of_rms(self, levels):
        return np.sqrt(1 + 2.25 * np.log2((levels + 1) / 2))

    def test_the_same_step_has_the_same_bits_and_other_steps_others(self):
        x, apply = by_length(7, 16), rounded(16, 1)
        first, again, other = (apply(x, tf.constant(step, tf.int64)) for step in (1, 1, 2))
        self.assertAllEqual(first, again)
        self.assertNotAllEqual(first, other)

    @parameterized.parameters(np.inf, -np.inf, np.nan)
    @pytest.mark.default_cases(1)
    def test_rows_that_are_not_finite_are_nan_with_their_block(self, value):
        x = by_length(64, 16)
        x[20, 3] = value
        for levels in (1, 7):
            got = rounded(16, levels)(x, tf.constant(0, tf.int64)).numpy()
            self.assertAllEqual(np.isnan(got).all(1), (np.arange(64) // 16) == 1)

    def test_zeros_stay_zeros(self):
        got = rounded(16, 1)(np.zeros([9, 16], np.float32), tf.constant(0, tf.int64))
        self.assertAllEqual(got, np.zeros([9, 16]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
