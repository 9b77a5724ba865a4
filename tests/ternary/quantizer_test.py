"""Tests of rounding to ternary codes."""

import functools
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.ternary import ROUNDINGS, quantizer, random_words, ternarize

SIZE = 40_000


def codes(gradient, scale=1.0, *, step=0, replica=0, num_replicas=1, **kwargs):
    kwargs = {"seed": 0, "tensor": 0, "rounding": "correlated", **kwargs}
    gradient = tf.cast(gradient, tf.float32)
    return ternarize(
        gradient, scale, step=step, replica=replica, num_replicas=num_replicas, **kwargs
    ).numpy()


class TernarizeTest(tf.test.TestCase):
    def test_codes_equal_floor_of_clipped_plus_uniform(self):
        gradient = np.random.default_rng(0).normal(size=5000).astype(np.float32)
        for replica in range(3):
            words = random_words(5000, 9, 4, 2, 0).numpy().astype(np.int64)
            words = (words + replica * (2**32 // 3)) % 2**32
            uniform = (words >> 8) / 2.0**24
            expected = np.floor(np.clip(gradient / np.float64(1.5), -1, 1) + uniform)
            actual = codes(gradient, 1.5, seed=9, step=4, tensor=2, replica=replica, num_replicas=3)
            self.assertAllEqual(actual, np.minimum(expected, 1))

    def test_probability_of_a_code_is_gradient_over_scale(self):
        for rounding in ROUNDINGS:
            for p in (-1.0, -0.75, -0.01, 0.0, 0.3, 0.5, 0.999, 1.0):
                q = codes(np.full([SIZE], 2 * p), 2.0, replica=1, num_replicas=4, rounding=rounding)
                # Binomial distribution: five standard deviations and half a count.
                bound = 5 * np.sqrt(abs(p) * (1 - abs(p)) / SIZE) + 0.5 / SIZE
                self.assertNear(np.mean(q != 0), abs(p), bound)
                self.assertTrue(np.all(q * np.sign(p) >= 0))

    @settings(deadline=None, max_examples=20, derandomize=True)
    @given(
        rounding=st.sampled_from(ROUNDINGS),
        num_replicas=st.integers(1, 9),
        step=st.integers(0, 2**40),
        seed=st.integers(-(2**31), 2**31),
    )
    def test_every_replica_and_the_mean_of_replicas_are_unbiased(
        self, rounding, num_replicas, step, seed
    ):
        p = np.random.default_rng(abs(seed)).uniform(-1, 1, SIZE).astype(np.float32)
        error = np.stack(
            [
                codes(
                    p, rounding=rounding, replica=k, num_replicas=num_replicas, step=step, seed=seed
                )
                - p
                for k in range(num_replicas)
            ]
        )
        # Mean and first moment of the error over SIZE independent elements. An element's variance,
        # also of the mean over replicas, is at most 1/4. Five standard deviations.
        bound = 5 * 0.5 / np.sqrt(SIZE)
        for e in (*error, error.mean(0)):
            self.assertNear(e.mean(), 0.0, bound)
            self.assertNear((e * p).mean(), 0.0, bound)

    def test_correlated_rounding_has_less_variance_than_independent(self):
        rng = np.random.default_rng(1)
        for num_replicas, most in ((2, 0.85), (4, 0.75), (8, 0.70), (64, 0.65)):
            # Pure noise at 2.5 standard deviations, the worst case.
            g = np.clip(rng.normal(size=[num_replicas, SIZE]) / 2.5, -1, 1).astype(np.float32)
            variance = {}
            for rounding in ROUNDINGS:
                rounded = functools.partial(codes, rounding=rounding, num_replicas=num_replicas)
                q = np.mean([rounded(g[k], replica=k) for k in range(num_replicas)], 0)
                variance[rounding] = np.mean((q - g.mean(0)) ** 2)
            self.assertLess(variance["correlated"], most * variance["independent"])

    def test_replicas_that_agree_leave_less_than_one_count_of_error(self):
        p = np.random.default_rng(2).uniform(-1, 1, 1000).astype(np.float32)
        total = sum(codes(p, replica=k, num_replicas=8) for k in range(8))
        self.assertAllInRange(total - 8 * p, -1.0001, 1.0001)

    def test_the_scale_is_never_and_zero_always_rounded_to_zero(self):
        for scale in (1.0, 1.1, np.float32(1 / 3), 1e-30, 3e38, quantizer.SMALLEST_SCALE):
            s = np.float32(scale)
            self.assertAllEqual(codes(np.full([SIZE], s), s), np.ones([SIZE]))
            self.assertAllEqual(codes(np.full([SIZE], -s), s), -np.ones([SIZE]))
            self.assertAllEqual(codes(np.zeros([SIZE]), s), np.zeros([SIZE]))
        self.assertAllEqual(codes([5.0, -1e38, 3e38], 1.0), [1, -1, 1])

    def test_extreme_random_words_round_as_the_formula_says(self):
        words = tf.constant([0, 2**32 - 1, 0, 2**32 - 1, 0, 2**32 - 1], tf.uint32)
        g = tf.constant([0.5, 0.5, -0.5, -0.5, 1.0, -1.0])
        q = quantizer.round_to_ternary(g, quantizer.quantization_step(tf.constant(1.0)), words)
        self.assertAllEqual(q, [0, 1, -1, 0, 1, -1])

    def test_finer_codes_equal_floor_of_levels_plus_uniform(self):
        rng = np.random.default_rng(0)
        for levels in (2, 3, 7, 127):
            gradient = rng.normal(size=5000).astype(np.float32)
            words = random_words(5000, 9, 4, 2, 0).numpy().astype(np.int64)
            uniform = ((words + 2 * (2**32 // 3)) % 2**32 >> 8) / 2.0**24
            exact = np.clip(gradient / np.float64(1.5), -1, 1) * levels + uniform
            actual = codes(
                gradient, 1.5, seed=9, step=4, tensor=2, replica=2, num_replicas=3, levels=levels
            )
            # Places are float32 products, rounded up by a fraction of 2**-22.
            near = np.abs(exact - np.round(exact)) < levels * 2.0**-21
            self.assertLess(np.mean(near), 0.01)
            expected = np.minimum(np.floor(exact), levels)
            self.assertAllEqual(actual[~near], expected[~near])

    @settings(deadline=None, max_examples=12, derandomize=True)
    @given(
        levels=st.sampled_from([2, 3, 7, 31, 127]),
        rounding=st.sampled_from(ROUNDINGS),
        seed=st.integers(-(2**31), 2**31),
    )
    def test_finer_codes_are_unbiased_and_less_than_a_step_off(self, levels, rounding, seed):
        p = np.random.default_rng(abs(seed)).uniform(-1, 1, SIZE).astype(np.float32)
        q = [
            codes(p, levels=levels, rounding=rounding, replica=k, num_replicas=3, seed=seed)
            for k in range(3)
        ]
        error = np.stack(q) - levels * p.astype(np.float64)
        self.assertLessEqual(np.abs(error).max(), 1 + levels * 2.0**-21)
        bound = 5 * 0.5 / np.sqrt(SIZE)
        for e in (*error, error.mean(0)):
            self.assertNear(e.mean(), 0.0, bound)
            self.assertNear((e * p).mean(), 0.0, bound)

    def test_finer_codes_reach_the_last_level_at_the_scale_and_zero_stays_zero(self):
        smallest = quantizer.SMALLEST_SCALE_OF_LEVELS
        for levels in (2, 3, 7, 127):
            for scale in (1.0, 1.1, np.float32(1 / 3), 1e-28, 3e38, smallest):
                s = np.float32(scale)
                for sign in (1, -1):
                    actual = codes(np.full([SIZE], sign * s), s, levels=levels)
                    self.assertAllEqual(actual, np.full([SIZE], sign * levels))
                self.assertAllEqual(codes(np.zeros([SIZE]), s, levels=levels), np.zeros([SIZE]))
            beyond = codes([5.0, -1e38, 3e38], 1.0, levels=levels)
            self.assertAllEqual(beyond, [levels, -levels, levels])
            for scale in (0.0, -1.0, np.inf, np.nan, 1e-38):
                unusable = codes([-1.0, 0.0, 2.0, np.inf, np.nan], scale, levels=levels)
                self.assertAllEqual(unusable, 5 * [0])

    def test_unusable_scales_give_zeros(self):
        for scale in (0.0, -1.0, np.inf, np.nan, 1e-38):
            self.assertAllEqual(codes([-1.0, 0.0, 2.0, np.inf, np.nan], scale), 5 * [0])

    def test_half_precision_rounds_as_its_float32_value(self):
        gradient = tf.random.stateless_normal([300], [1, 2])
        for dtype in (tf.float16, tf.bfloat16):
            half = tf.cast(gradient, dtype)
            q = ternarize(half, 2.0, seed=0, step=0, tensor=0, replica=0, num_replicas=1)
            self.assertAllEqual(q, codes(half, 2.0))

    def test_eager_graph_and_xla_give_the_same_codes(self):
        gradient = tf.random.stateless_normal([37, 5], [3, 4])
        arguments = (gradient, tf.constant(2.5), tf.constant(11, tf.int64), tf.constant(1))

        def run(gradient, scale, step, replica, rounding, levels):
            return ternarize(gradient, scale, seed=1, step=step, tensor=2, replica=replica,
                             num_replicas=3, rounding=rounding, levels=levels)  # fmt: skip

        for how in (*((rounding, 1) for rounding in ROUNDINGS), ("correlated", 7)):
            eager = run(*arguments, *how)
            self.assertEqual(eager.shape, [37, 5])
            for jit in (False, True):
                self.assertAllEqual(tf.function(run, jit_compile=jit)(*arguments, *how), eager)

    def test_other_steps_tensors_seeds_and_replicas_draw_other_codes(self):
        p = np.full([1000], 0.5)
        for rounding in ROUNDINGS:
            base = codes(p, num_replicas=4, rounding=rounding)
            for change in ({"step": 1}, {"tensor": 1}, {"seed": 1}, {"replica": 1}):
                other = codes(p, num_replicas=4, rounding=rounding, **change)
                self.assertGreater(np.sum(base != other), 300, f"{rounding} {change}")

    def test_bad_options_are_refused(self):
        with self.assertRaisesRegex(ValueError, "`rounding` must be one of.*Received.*'nearest'"):
            codes([1.0], rounding="nearest")
        with self.assertRaisesRegex(ValueError, "`num_replicas` must be a positive.*=0"):
            codes([1.0], num_replicas=0)
        for levels in (0, 128, 1.5):
            with self.assertRaisesRegex(ValueError, "`levels` must be an integer from 1 to 127.*="):
                codes([1.0], levels=levels)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
