"""Tests of the local scale."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.ternary import local_scale, local_scales
from tests.ternary import half_precision

# On both sides of the sizes from which tensors are reduced one by one, and folded first.
SIZES = (1, 2, 63, 1000, 2**16, 2**16 + 1, 2**20 + 1)


def oracle(gradient, clip_factor):
    gradient = np.asarray(gradient, np.float64)
    if not gradient.size:
        return 0.0
    if not np.isfinite(gradient).all():
        return np.inf
    largest, deviation = np.abs(gradient).max(), gradient.std()
    if clip_factor == 0 or deviation <= 1e-6 * largest:
        return largest
    return min(clip_factor * deviation, largest)


def fused_scale(gradient, clip_factor):
    return local_scales([gradient], clip_factor)[0]


class LocalScaleTest(tf.test.TestCase, parameterized.TestCase):
    def check(self, gradient, rtol=1e-4):
        gradient = np.asarray(gradient, np.float32)
        for clip_factor in (0, 0.5, 2.5):
            for scale in (local_scale, fused_scale):
                actual = scale(gradient, clip_factor)
                self.assertEqual((actual.dtype, actual.shape.rank), (tf.float32, 0))
                self.assertAllClose(actual, oracle(gradient, clip_factor), rtol=rtol, atol=0)

    def test_noise_of_any_magnitude(self):
        rng = np.random.default_rng(0)
        for size in SIZES:
            for magnitude in (1.0, 1e-30, 1e-20, 1e20, 1e37):
                self.check(np.clip(rng.normal(size=size), -3, 3) * magnitude)

    def test_equal_elements_give_their_magnitude_exactly(self):
        for size in SIZES:
            for value in (0.1, -0.1, 1e-30, 3.3e38, 1 / 3):
                self.check(np.full([size], value), rtol=0)

    def test_a_large_mean_does_not_cancel(self):
        rng = np.random.default_rng(1)
        for size in SIZES[3:]:
            self.check(1000 + rng.normal(size=size), rtol=1e-3)

    def test_never_above_the_largest(self):
        for scale in (local_scale, fused_scale):
            self.assertEqual(float(scale([1.0, -1.0], 2.5)), 1.0)
            self.assertEqual(float(scale(np.tile([1.0, -1.0], 2**17), 2.5)), 1.0)

    def test_zeros_and_nothing_give_zero(self):
        for shape in ([0], [3, 0], [], [7], [2**17]):
            for clip_factor in (0, 2.5):
                for scale in (local_scale, fused_scale):
                    self.assertEqual(float(scale(tf.zeros(shape), clip_factor)), 0.0)

    def test_any_non_finite_element_gives_infinity(self):
        for size in SIZES:
            for value in (np.nan, np.inf, -np.inf):
                for rest, position in ((0.0, size // 2), (1.0, size // 2), (1.0, size - 1)):
                    gradient = np.full([size], rest, np.float32)
                    gradient[position] = value
                    for clip_factor in (0, 2.5):
                        for scale in (local_scale, fused_scale):
                            self.assertEqual(float(scale(gradient, clip_factor)), np.inf)

    @parameterized.parameters(*half_precision.DTYPES)
    def test_half_precision_does_not_overflow(self, dtype):
        if not half_precision.compiles(dtype):
            self.skipTest(f"XLA compiles no {dtype.name} for this processor")
        for size in (500, 2**17, 2**20 + 500):
            gradient = tf.cast(tf.random.stateless_normal([size], [1, 2]) * 10_000, dtype)
            for scale in (local_scale, fused_scale):
                self.assertAllClose(scale(gradient, 2.5), oracle(gradient.numpy(), 2.5), rtol=1e-4)

    def test_a_list_gives_the_scale_of_each_in_eager_graph_and_xla(self):
        rng = np.random.default_rng(2)
        shapes = ([3], [70_000], [5, 40], [0], [1], [300, 300], [1100, 1000])
        gradients = [tf.constant(rng.normal(size=s), tf.float32) for s in shapes]
        expected = [oracle(g.numpy(), 2.5) for g in gradients]
        self.assertAllClose(local_scales(gradients, 2.5), expected, rtol=1e-4)
        for jit in (False, True):
            run = tf.function(lambda *g: local_scales(g, 2.5), jit_compile=jit)
            self.assertAllClose(run(*gradients), expected, rtol=1e-4)
        self.assertEqual(local_scales([], 2.5).shape, [0])

    def test_bad_clip_factors_are_refused(self):
        for clip_factor in (-1.0, np.inf, np.nan):
            for scale in (local_scale, fused_scale):
                with self.assertRaisesRegex(ValueError, "`clip_factor` must be zero or.*Received"):
                    scale([1.0], clip_factor)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
