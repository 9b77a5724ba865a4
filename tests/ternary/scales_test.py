"""Tests of the local scale."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.ternary import ScaleRule, auto_factor, local_scale, local_scales, ternarize
from terngrad_tf.ternary.scales import HORIZON
from tests.ternary import half_precision

# Sizes around the limits between reduction one by one, and folding first.
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


def fused_scale(gradient, clip_factor, **options):
    return local_scales([gradient], clip_factor, **options)[0]


def squared_error(gradient, scale, num_replicas, levels=1):
    """Returns the error that `ScaleRule` states for clipping and rounding, in float64."""
    sizes = np.abs(np.asarray(gradient, np.float64))
    kept = np.minimum(sizes, scale)
    lost = np.sum((sizes - kept) ** 2)
    step = scale / levels
    above = kept - step * np.floor(kept / step)
    return lost + np.sum(above * (step - above)) / (num_replicas * HORIZON)


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

    def test_zeros_and_empty_tensors_give_zero(self):
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

    @pytest.mark.slow
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

    def test_a_second_pass_for_one_tensor_does_not_change_others(self):
        noise = np.random.default_rng(3).normal(size=[4, 70_000]).astype(np.float32)
        alone = [*local_scales(list(noise), 2.5).numpy()]
        nan = np.full([70_000], np.nan, np.float32)
        for second in (1 + 1e-3 * noise[0], 1e-20 * noise[0], nan):
            first, got, *rest = local_scales([noise[0], second, *noise[1:]], 2.5).numpy()
            self.assertEqual([first, *rest], alone)
            expected = oracle(second, 2.5) if np.isfinite(second).all() else np.inf
            self.assertAllClose(got, expected, rtol=1e-4)

    def test_bad_options_are_refused(self):
        for clip_factor in (-1.0, np.inf, np.nan, "automatic", 1e-38, 5e-324, 9e-6):
            for scale in (local_scale, fused_scale):
                with self.assertRaisesRegex(
                    ValueError, "`clip_factor` must be 0 .*from 1e-05.*Received"
                ):
                    scale([1.0], clip_factor)
        for share in (0.0, -0.1, 1.1, np.nan):
            with self.assertRaisesRegex(ValueError, "`nonzero_share` must be above 0.*Received"):
                ScaleRule(2.5, nonzero_share=share)


class AutoTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, 1.0, 1), (4, 1.0, 1), (64, 1.0, 1), (16, 0.1, 1), (4, 1.0, 3), (8, 1.0, 7)
    )
    @pytest.mark.default_cases(2)
    def test_error_is_near_the_best_scales_for_exponential_sizes(self, num, share, levels):
        rng = np.random.default_rng(num)
        gradient = rng.exponential(size=100_000) * rng.choice([-1, 1], size=100_000)
        gradient *= rng.random(size=gradient.shape) < share
        best = min(squared_error(gradient, s, num, levels) for s in np.linspace(0.1, 14, 200))
        how = dict(num_replicas=num, levels=levels)
        for scale in (local_scale, fused_scale):
            found = float(scale(gradient.astype(np.float32), "auto", **how))
            # Few elements of finer codes are clipped, so the sample's tail matters more.
            most = 1.01 if levels == 1 else 1.02
            self.assertLess(squared_error(gradient, found, num, levels), most * best)

    def test_the_factor_is_the_root(self):
        for num in (1, 2, 64, 10_000):
            x = auto_factor(num)
            self.assertAllClose(np.exp(x), 2 * num * HORIZON + 1 + x, rtol=1e-9)

    def test_follows_magnitude_and_never_exceeds_the_largest(self):
        rng = np.random.default_rng(0)
        for size in SIZES:
            gradient = np.clip(rng.normal(size=size), -3, 3)
            expected = np.sum(gradient**2) / (2 * np.sum(np.abs(gradient))) * auto_factor(4)
            expected = min(expected, np.abs(gradient).max())
            for magnitude in (1.0, 1e-30, 1e-20, 1e20, 1e37):
                for scale in (local_scale, fused_scale):
                    found = scale((gradient * magnitude).astype(np.float32), "auto", num_replicas=4)
                    self.assertAllClose(found / magnitude, expected, rtol=1e-4)

    def test_zeros_empty_tensors_and_non_finite_values(self):
        for scale in (local_scale, fused_scale):
            for shape in ([0], [7], [2**17]):
                self.assertEqual(float(scale(tf.zeros(shape), "auto")), 0.0)
            self.assertEqual(float(scale([1.0, np.nan], "auto")), np.inf)
            self.assertEqual(float(scale([3.0, -3.0], "auto", num_replicas=2)), 3.0)


class NonzeroShareTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(clip_factor=(0, 2.5, "auto"), size=(5000, 2**17, 2**20 + 500))
    @pytest.mark.default_cases(3)
    def test_codes_are_no_denser(self, clip_factor, size):
        rng = np.random.default_rng(size)
        gradient = tf.constant(rng.standard_t(3, size=size), tf.float32)
        for share in (0.3, 0.01):
            for scale in (local_scale, fused_scale):
                found = scale(gradient, clip_factor, nonzero_share=share)
                which = dict(seed=0, step=0, tensor=0, replica=0, num_replicas=1)
                codes = ternarize(gradient, found, rounding="independent", **which)
                nonzero = np.mean(codes.numpy() != 0)
                # Five standard deviations of a count.
                self.assertLess(nonzero, share + 5 * np.sqrt(share / size))
                # The bound is nearly reached without clipping.
                if share == 0.01 and clip_factor == 0 and size == 5000:
                    self.assertGreater(nonzero, share - 5 * np.sqrt(share / size))

    def test_raises_scales_that_are_too_small_only(self):
        rng = np.random.default_rng(1)
        gradient = rng.normal(size=3000).astype(np.float32)
        mean = np.mean(np.abs(gradient.astype(np.float64)))
        for scale in (local_scale, fused_scale):
            plain = scale(gradient, 2.5)
            self.assertAllEqual(scale(gradient, 2.5, nonzero_share=0.5), plain)
            self.assertAllClose(scale(gradient, 2.5, nonzero_share=0.02), mean / 0.02, rtol=1e-5)

    def test_zeros_equal_elements_and_the_largest_numbers(self):
        for scale in (local_scale, fused_scale):
            self.assertEqual(float(scale(tf.zeros([9]), 0, nonzero_share=0.1)), 0.0)
            self.assertAllClose(scale([2.0, -2.0], 2.5, nonzero_share=0.1), 20.0)
            for size in (3, 2**17):
                found = scale(np.full([size], 3e38, np.float32), 0, nonzero_share=0.01)
                self.assertTrue(np.isfinite(found.numpy()))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
