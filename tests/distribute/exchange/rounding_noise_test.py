"""Tests of the variance that rounding adds to rotated gradients."""

import dataclasses
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import ternary
from terngrad_tf.distribute import Quantization
from terngrad_tf.distribute.exchange import buckets

BLOCK = 1024


def squared_errors(quantization, gradients, num_steps, wire="auto"):
    """Each sum element's squared error and variance, as means over steps."""
    count = len(gradients)
    context = buckets.ReductionContext(["CPU:0"] * count, count, None)
    local = [[tf.constant(g, tf.float32)] for g in gradients]
    first = buckets.Bucket(
        context=context,
        quantization=quantization,
        gradients=local,
        measured=[quantization.local_scales(g) for g in local],
        indices=[0],
        step=tf.constant(0),
    ).with_shared_scales()
    errors, variances = [], []
    for step in range(num_steps):
        bucket = dataclasses.replace(first, step=tf.constant(step))
        ((total, *_),), _, noise = buckets.reduce_bucket(bucket, wire)
        errors.append(np.square(total.numpy() - np.sum(gradients, 0)))
        variances.append(ternary.spread(noise[0], gradients[0].shape).numpy())
    return np.mean(errors, 0), np.mean(variances, 0)


class RoundingNoiseTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        grad_bits=[1, 2, 4], count=[1, 4], rounding=["correlated", "independent"]
    )
    @pytest.mark.default_cases(4)
    def test_variance_of_gaussian_blocks_matches_many_steps(self, grad_bits, count, rounding):
        rng = np.random.default_rng(0)
        gradients = rng.standard_normal([count, 8, BLOCK])
        # Blocks are equally large on all replicas, and differ from each other.
        gradients /= np.sqrt(np.mean(gradients**2, -1, keepdims=True))
        gradients *= np.arange(1, 9)[:, np.newaxis]
        quantization = Quantization(grad_bits=grad_bits, rotate=True, rounding=rounding)
        errors, noise = squared_errors(quantization, list(gradients), 12)
        self.assertAllClose(errors.mean(-1) / noise[:, 0], np.ones(8), atol=0.12)
        self.assertAllClose(np.mean(errors / noise), 1, atol=0.04)
        self.assertAllEqual(noise, np.repeat(noise[:, :1], BLOCK, 1))

    @pytest.mark.slow
    def test_sums_that_are_rounded_again_have_the_variance_of_both(self):
        self.check_sums_that_are_rounded_again(1, 2)

    @parameterized.parameters((1, 8), (2, 4), (4, 4))
    @pytest.mark.long
    def test_sums_of_finer_codes_and_more_replicas_that_are_rounded_again(self, grad_bits, count):
        self.check_sums_that_are_rounded_again(grad_bits, count)

    def check_sums_that_are_rounded_again(self, grad_bits, count):
        rng = np.random.default_rng(0)
        # Replicas have part of their gradients in common; the last block of a tensor is smaller.
        common = rng.standard_normal(8 * BLOCK + 100)
        gradients = common + 2 * rng.standard_normal([count, len(common)])
        quantization = Quantization(grad_bits=grad_bits, rotate=True)
        errors, noise = squared_errors(quantization, list(gradients), 12, "bidirectional")
        self.assertAllClose(np.mean(errors / noise), 1, atol=0.05)
        _, once = squared_errors(quantization, list(gradients), 1)
        self.assertTrue(np.all(noise > 1.2 * once))

    @parameterized.parameters(1, 2)
    def test_variance_is_a_bound_for_blocks_of_few_elements(self, num_elements):
        gradient = np.zeros([4, BLOCK])
        gradient[:, 100 : 100 + num_elements] = 1
        errors, noise = squared_errors(Quantization(rotate=True), [gradient] * 2, 20)
        self.assertTrue(np.all(errors.mean(-1) < 1.05 * noise[:, 0]))

    @parameterized.parameters(1, 2, 4)
    @pytest.mark.default_cases(1)
    def test_variance_follows_the_sizes_of_replicas(self, grad_bits):
        rng = np.random.default_rng(0)
        gradients = [rng.standard_normal([8, BLOCK]) * size for size in (1, 0.3, 0.3, 0.3)]
        errors, noise = squared_errors(Quantization(grad_bits=grad_bits, rotate=True), gradients, 8)
        self.assertAllClose(np.mean(errors / noise), 1, atol=0.1)

    @parameterized.parameters((1, 8, 8), (1, 6, 2), (7, 64, 64), (127, 3, 1))
    def test_variance_is_a_multiple_of_a_power_of_two(self, levels, count, members):
        # A graph may merge the constants of two products, which changes the rounding unless one is
        # a power of two.
        own = np.random.default_rng(0).uniform(size=[members, 100]).astype(np.float32)
        how = {"levels": levels, "rounding": "correlated"}
        noise = ternary.noise_of_sums(own.max(0), own, count, **how).numpy()
        largest = count * ternary.rounding_noise(levels, count, "correlated")
        unit = 2.0 ** np.floor(np.log2(largest / count / 2**12))
        self.assertAllEqual(noise / unit, np.round(noise / unit))
        self.assertAllInRange(noise, 0, largest * 1.001)

    def test_variance_is_finite_for_all_gradients(self):
        for value in (0.0, 1e-30, 1e30, np.inf, np.nan):
            quantization = Quantization(rotate=True)
            _, noise = squared_errors(quantization, [np.full([20], value)] * 2, 1)
            self.assertTrue(np.all(np.isfinite(noise)))
            self.assertEqual(np.all(noise == 0), value < 1e-20)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
