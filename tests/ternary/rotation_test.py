"""Tests of the rotation of gradients, and of its loops in `ternary.fused`."""

import math
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf import ternary
from terngrad_tf.ternary import quantizer, rotation
from tests.ternary import half_precision

# Copies of a block, each with its own signs and random bits.
COPIES = 4000
# Documented bias, as a share of a block's length: in general, and with heavy tails.
BIAS, HEAVY_BIAS = 0.06, 0.13
RNG = np.random.default_rng()


def seed_blocks(seed):
    """Makes the next random blocks reproducible."""
    RNG.bit_generator.state = np.random.default_rng(seed).bit_generator.state


def hot(size, *values):
    """Returns a block that is zero except for these values."""
    block = np.zeros(size)
    block[3 : 3 + 2 * len(values) : 2] = values
    return block


def sparse(size):
    return np.where(np.arange(size) % 8 == 1, RNG.standard_normal(size), 0)


BLOCKS = {
    "gaussian": RNG.standard_normal,
    "one_hot": lambda size: hot(size, 1),
    "two_hot": lambda size: hot(size, 1, -1),
    "two_unequal": lambda size: hot(size, 1, 0.1),
    "three_hot": lambda size: hot(size, 1, 1, 1),
    "four_hot": lambda size: hot(size, 1, 1, 1, -1),
    "constant": np.ones,
    "sparse": sparse,
    "heavy_tailed": lambda size: RNG.standard_t(2, size),
    "very_heavy_tailed": lambda size: RNG.standard_cauchy(size),
    "one_in_noise": lambda size: hot(size, 1) + 0.05 * RNG.standard_normal(size),
    "tiny": lambda size: 1e-27 * RNG.standard_normal(size),
    "huge": lambda size: 1e36 * RNG.standard_normal(size),
}


def rounded_and_back(block, *, larger=1.0, levels=1, seed=0, copies=COPIES):
    """Rotates, rounds and rotates back copies of a block, each with its own signs.

    Args:
        block: vector of B elements.
        larger: ratio of another replica's scale to this block's scale.
    """
    size = len(block)
    x = tf.tile(tf.constant(block, tf.float32)[tf.newaxis], [copies, 1])
    squares = tf.reduce_sum(tf.cast(x, tf.float64) ** 2, 1)
    fourths = tf.reduce_sum(tf.cast(x, tf.float64) ** 4, 1)
    own, concentrations = rotation.scales_and_concentrations(squares, fourths, size, levels)
    shared = own * larger
    factors = rotation.factors(shared, own, concentrations, levels)
    signs = tf.reshape(rotation.random_signs(copies * size, seed, 7, 2), [copies, size])
    rotated = rotation.rotate(x * factors[:, tf.newaxis], signs)
    codes = quantizer.ternarize(
        rotated, 1.0, seed=seed, step=7, tensor=2, replica=0, num_replicas=1, levels=levels
    )
    sums = rotation.rotate_back(tf.cast(codes, tf.float32), signs) * math.sqrt(size)
    return (sums * rotation.units(shared, size, levels)[:, tf.newaxis]).numpy()


def bias(block, *, copies=COPIES, **options):
    """Returns length and deviation of the mean's error, relative to the block's length."""
    length = np.linalg.norm(block)
    results = rounded_and_back(block, copies=copies, **options) / length
    error = np.linalg.norm(results.mean(0, dtype=np.float64) - block / length)
    return error, math.sqrt(results.var(0, dtype=np.float64).sum() / copies)


class RotationTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        seed_blocks(1)

    def test_blocks_hold_the_elements(self):
        self.assertEqual(rotation.block_sizes(0), [])
        self.assertEqual(rotation.block_sizes(1), [16])
        self.assertEqual(rotation.block_sizes(17), [32])
        self.assertEqual(rotation.block_sizes(1024), [1024])
        self.assertEqual(rotation.block_sizes(1025), [1024, 16])
        self.assertEqual(rotation.block_sizes(3 * 1024 - 1), [1024] * 3)

    @parameterized.parameters(16, 32, 64, 1024)
    def test_the_hadamard_matrix_is_its_own_inverse(self, size):
        matrix = rotation.hadamard(size)
        self.assertAllEqual(np.abs(matrix), np.ones([size, size]))
        self.assertAllEqual(matrix @ matrix, size * np.eye(size))
        self.assertAllEqual(matrix, matrix.T)

    @parameterized.parameters(16, 128, 1024)
    def test_rotation_keeps_lengths_and_comes_back(self, size):
        x = tf.constant(RNG.standard_normal([5, size]), tf.float32)
        signs = tf.reshape(rotation.random_signs(5 * size, 1, 2, 3), [5, size])
        rotated = rotation.rotate(x, signs)
        self.assertAllClose(tf.norm(rotated, axis=1), tf.norm(x, axis=1), 1e-5)
        self.assertAllClose(rotation.rotate_back(rotated, signs), x, atol=1e-5)
        self.assertGreater(np.abs(rotated - x).max(), 0.1)

    def test_signs_are_balanced_and_differ_by_step_tensor_and_seed(self):
        signs = [
            rotation.random_signs(10_000, *key).numpy() for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0))
        ]
        signs.append(rotation.random_signs(10_000, 0, 0, 1).numpy())
        for i, own in enumerate(signs):
            self.assertAllEqual(np.abs(own), np.ones(10_000))
            for other in [1.0, *signs[:i]]:
                # Five standard deviations.
                self.assertLess(abs(np.mean(own * other)), 0.05)

    def test_scale_factors_are_near_the_best_of_gaussian_elements(self):
        # Correlated rounding of independent gradients on 16 replicas.
        rng = np.random.default_rng(1)
        r = rng.standard_normal([16, 20_000])
        u = (rng.random(20_000) + np.arange(16)[:, np.newaxis] / 16) % 1
        for levels in (1, 3, 7):
            factor = rotation.scale_factor(levels)

            def error(c, levels=levels):
                sums = np.floor(np.clip(r / c, -1, 1) * levels + u).sum(0)
                decoded = sums * c / levels / math.erf(c / math.sqrt(2))
                return np.mean((decoded - r.sum(0)) ** 2)

            self.assertLess(error(factor), 1.1 * min(map(error, np.arange(0.7, 4, 0.1))))

    @parameterized.named_parameters(
        (f"{name}_{size}_{larger:g}", name, size, larger)
        for name in BLOCKS
        for size, larger in ((16, 1.0), (64, 1.0), (64, 1.5))
    )
    def test_mean_over_signs_and_bits_is_the_block(self, name, size, larger):
        error, noise = bias(BLOCKS[name](size), larger=larger)
        self.assertLess(error, BIAS + 2 * noise)

    @parameterized.product(name=("heavy_tailed", "very_heavy_tailed"), size=(16, 64, 256))
    @pytest.mark.default_cases(2)
    def test_the_mean_of_any_heavy_tailed_block_is_near_it(self, name, size):
        for seed in range(12):
            seed_blocks(seed)
            error, noise = bias(BLOCKS[name](size), copies=1000)
            self.assertLess(error, HEAVY_BIAS + 2 * noise)

    @parameterized.parameters("gaussian", "one_hot", "heavy_tailed", "sparse")
    def test_finer_codes_of_large_blocks_have_less_bias_and_noise(self, name):
        error, noise = bias(BLOCKS[name](1024), levels=7, copies=400)
        self.assertLess(400 * noise**2, 0.05)
        self.assertLess(error, 0.02 + 2 * noise)

    def test_error_of_one_replica_follows_theory(self):
        # Numerical integration over Gaussian elements.
        r = np.linspace(-8, 8, 400_001)
        weight = np.exp(-(r**2) / 2) / np.sum(np.exp(-(r**2) / 2))
        c, a = rotation.scale_factor(1), rotation.kept_share(1)
        share = np.clip(np.abs(r) / c, 0, 1)
        expected = np.sum(weight * share) * (c / a) ** 2 - 1
        block = RNG.standard_normal(256)
        results = rounded_and_back(block, copies=1000) / np.linalg.norm(block)
        error = np.mean(np.sum((results - block / np.linalg.norm(block)) ** 2, 1))
        self.assertNear(error, expected, 0.03)

    @parameterized.parameters(1, 3, 7)
    def test_gains_of_gaussian_blocks_keep_the_documented_share(self, levels):
        for larger in (1.0, 1.3, 3.0, 100.0):
            own = tf.constant([2.0])
            gain = rotation.gains(larger * own, own, tf.zeros([1]), levels).numpy()[0]
            bound = rotation.scale_factor(levels) * larger / gain
            kept = gain * math.erf(bound / math.sqrt(2))
            self.assertNear(kept, rotation.kept_share(levels), 2e-3)


SHAPES = [(3, 700), (10,), (), (0,), (1024, 2), (64,), (1_100_000,)]


def gradients_of(replica, dtype=tf.float32, shapes=tuple(SHAPES)):
    rng = np.random.default_rng(replica)
    return [tf.cast((i + 1) * rng.standard_normal(shape), dtype) for i, shape in enumerate(shapes)]


class LoopsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        seed_blocks(1)

    def exchange(self, gradients, levels=1, step=3, dtypes=None):
        """Returns the decoded sum of the replicas' gradients, and the shared scales."""
        count = len(gradients)
        loops = ternary.Rotation([g.shape for g in gradients[0]], levels, count)
        measured = [loops.measure(g) for g in gradients]
        scales = tf.reduce_max([own[0] for own in measured], 0)
        key = {"seed": 5, "step": step, "tensor": 9}
        vectors = [
            loops.rotate(g, own, scales, **key) for g, own in zip(gradients, measured, strict=True)
        ]
        self.assertEqual([v.shape[0] for v in vectors[0]], loops.sizes)
        sums = ternary.sum_codes(
            *(vectors, tf.ones([len(loops.sizes)])),
            **{"seed": 5, "step": step, "replicas": range(count), "num_replicas": count},
            levels=levels,
        )
        dtypes = dtypes or [g.dtype for g in gradients[0]]
        return loops.rotate_back(sums, scales, dtypes, **key), scales

    @pytest.mark.slow
    @settings(max_examples=10, deadline=None, derandomize=True)
    @given(st.lists(st.integers(0, 3000), min_size=1, max_size=5))
    def test_rotation_equals_the_definition(self, lengths):
        gradients = [
            tf.constant(np.random.default_rng(n).standard_normal(n), tf.float32) for n in lengths
        ]
        loops = ternary.Rotation([[n] for n in lengths], levels=1)
        measured = loops.measure(gradients)
        scales = 1.5 * measured[0]
        (vector,) = loops.rotate(gradients, measured, scales, seed=1, step=2, tensor=3)
        # Computes the definition block by block, the largest first.
        cut = [(size, i) for i, n in enumerate(lengths) for size in rotation.block_sizes(n)]
        starts = [0] * len(lengths)
        blocks = []
        for size, i in cut:
            held = gradients[i][starts[i] : starts[i] + size].numpy()
            starts[i] += size
            blocks.append(np.pad(held, [0, size - len(held)]))
        blocks.sort(key=lambda block: -len(block))
        signs = rotation.random_signs(loops.sizes[0], 1, 2, 3)
        start = 0
        self.assertEqual(loops.num_blocks, len(blocks))
        for number, block in enumerate(blocks):
            size = len(block)
            own, concentration = rotation.scales_and_concentrations(
                tf.constant([np.sum(block.astype(np.float64) ** 2)]),
                tf.constant([np.sum(block.astype(np.float64) ** 4)]),
                *(size, 1),
            )
            self.assertAllClose(measured[:, number], [own[0], concentration[0]], 1e-5)
            factor = rotation.factors(1.5 * own, own, concentration, 1)
            rows = tf.constant(block[np.newaxis]) * factor
            expected = rotation.rotate(rows, signs[tf.newaxis, start : start + size])[0]
            self.assertAllClose(vector[start : start + size], expected, 1e-4, 1e-4)
            start += size
        sums = tf.round(3 * vector)
        back = loops.rotate_back(
            [sums], scales, [tf.float32] * len(lengths), seed=1, step=2, tensor=3
        )
        self.assertEqual([b.shape for b in back], [g.shape for g in gradients])
        if lengths[0]:
            size = rotation.block_sizes(lengths[0])[0]
            start = sum(len(b) for b in blocks[: [len(b) for b in blocks].index(size)])
            expected = rotation.rotate_back(
                sums[tf.newaxis, start : start + size], signs[tf.newaxis, start : start + size]
            )
            number = [len(b) for b in blocks].index(size)
            expected *= rotation.units(scales[number], size, 1) * math.sqrt(size)
            held = min(size, lengths[0])
            self.assertAllClose(back[0][:held], expected[0, :held], 1e-4, 1e-4)

    @parameterized.parameters(1, 2, 7)
    @pytest.mark.default_cases(1)
    def test_sums_of_replicas_are_near_the_gradients_sums(self, levels):
        replicas = [gradients_of(k) for k in range(4)]
        sums, _ = self.exchange(replicas, levels)
        errors = []
        for i, total in enumerate(sums):
            expected = np.sum([g[i].numpy() for g in replicas], axis=0)
            self.assertEqual(total.shape, SHAPES[i])
            if total.shape.num_elements() > 500:
                errors.append(np.sum((total - expected) ** 2) / np.sum(expected**2))
        self.assertLess(max(errors), {1: 0.42, 2: 0.15, 7: 0.02}[levels])

    @pytest.mark.slow
    def test_half_precision_equals_float32_of_its_values(self):
        for dtype in filter(half_precision.compiles, half_precision.DTYPES):
            shapes = ((2000,), (10,))
            own = [gradients_of(k, dtype, shapes) for k in range(2)]
            as_float = [[tf.cast(g, tf.float32) for g in gradients] for gradients in own]
            for got, want in zip(self.exchange(own)[0], self.exchange(as_float)[0], strict=True):
                self.assertEqual(got.dtype, dtype)
                self.assertAllEqual(got, tf.cast(want, dtype))

    def test_same_numbers_give_the_same_bits_and_other_steps_others(self):
        replicas = [gradients_of(k) for k in range(2)]
        first, again, later = (self.exchange(replicas, step=step)[0] for step in (3, 3, 4))
        for one, two, other in zip(first, again, later, strict=True):
            self.assertAllEqual(one, two)
            if one.shape.num_elements() > 100:
                self.assertNotAllEqual(one, other)

    def test_zeros_stay_zeros(self):
        zeros = [tf.zeros(shape) for shape in SHAPES]
        sums, scales = self.exchange([zeros, zeros])
        self.assertAllEqual(scales, tf.zeros_like(scales))
        for total in sums:
            self.assertAllEqual(total, tf.zeros_like(total))

    def test_zeros_of_one_replica_leave_the_others_block(self):
        one, zeros = gradients_of(0), [tf.zeros(shape) for shape in SHAPES]
        sums, _ = self.exchange([one, zeros], levels=127)
        for total, expected in zip(sums, one, strict=True):
            self.assertAllClose(total, expected, atol=0.1 * (np.abs(expected).max(initial=0)))

    @parameterized.parameters(np.nan, np.inf, -np.inf)
    @pytest.mark.default_cases(1)
    def test_a_non_finite_value_makes_only_its_block_nan(self, value):
        healthy = [gradients_of(0), gradients_of(1)]
        expected, _ = self.exchange(healthy)
        sick = [g.numpy() for g in healthy[1]]
        sick[0][2, 699] = value  # in the tensor's third block, of 64 elements
        sums, scales = self.exchange([healthy[0], [tf.constant(g) for g in sick]])
        self.assertEqual(np.sum(~np.isfinite(scales)), 1)
        self.assertAllEqual(np.isnan(np.reshape(sums[0], -1)), np.arange(2100) >= 2048)
        self.assertAllEqual(np.reshape(sums[0], -1)[:2048], np.reshape(expected[0], -1)[:2048])
        for total, other in zip(sums[1:], expected[1:], strict=True):
            self.assertAllEqual(total, other)

    @parameterized.parameters(1e-36, 1e-30, 1e30, 1e37)
    def test_tiny_and_huge_gradients_are_scaled_or_zero(self, factor):
        block = [tf.constant(RNG.standard_normal(3000), tf.float32)]
        (expected,), _ = self.exchange([block])
        (total,), _ = self.exchange([[block[0] * factor]])
        if factor < 1e-32:
            self.assertAllEqual(total, tf.zeros_like(total))
        elif factor < 1e35:
            self.assertAllClose(total / factor, expected, 1e-4, 1e-3)
        else:
            self.assertTrue(np.all(np.isfinite(total)))
            self.assertGreater(np.dot(total / factor, block[0]), 1000)

    def test_results_are_multiples_of_the_units(self):
        # Products of whole numbers are exact in any order of addition.
        loops = ternary.Rotation([(5000,)], 1, 1000)
        sums = [tf.constant(RNG.integers(-1000, 1001, loops.sizes[0]), tf.float32)]
        scales = tf.ones([loops.num_blocks])
        (back,) = loops.rotate_back(sums, scales, [tf.float32], seed=0, step=0, tensor=0)
        signs = rotation.random_signs(loops.sizes[0], 0, 0, 0).numpy()
        for number, start in enumerate(range(0, 5000, 1024)):
            size = rotation.block_sizes(5000)[number]
            own = slice(start, start + size)
            exact = (rotation.hadamard(size).astype(np.float64) @ sums[0][own].numpy()) * signs[own]
            unit = rotation.units(scales[number], size, 1).numpy()
            expected = exact.astype(np.float32) * unit
            self.assertAllEqual(back[own], expected[: len(back[own])])

    def test_many_replicas_sums_are_exact(self):
        loops = ternary.Rotation([(1024,)], 127, 1001)
        sums = [tf.constant(RNG.integers(-127_127, 127_128, 1024), tf.float32)]
        (back,) = loops.rotate_back(sums, tf.ones([1]), [tf.float32], seed=0, step=0, tensor=0)
        signs = rotation.random_signs(1024, 0, 0, 0).numpy()
        exact = (rotation.hadamard(1024).astype(np.float64) @ sums[0].numpy()) * signs
        unit = rotation.units(tf.ones([]), 1024, 127).numpy()
        self.assertAllEqual(back, exact.astype(np.float32) * unit)

    def test_tensors_beyond_32_bit_positions_are_refused(self):
        ternary.Rotation([[2**31 - 1]], 1)
        with self.assertRaisesRegex(ValueError, r"fewer than 2\*\*31 elements. .*\[65536, 32768\]"):
            ternary.Rotation([[4], [2**16, 2**15]], 1)

    def test_empty_tensors_alone(self):
        sums, scales = self.exchange([[tf.zeros([0])], [tf.zeros([0])]])
        self.assertEqual(scales.shape, [0])
        self.assertEqual(sums[0].shape, [0])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
