"""Tests of keeping only the largest elements, all with one magnitude."""

import math
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from terngrad_tf.ternary import largest_as_codes

FLOATS = st.floats(width=32, min_value=-(2.0**99), max_value=2.0**99, allow_subnormal=False)


def oracle(tensors, share):
    sizes = np.abs(np.concatenate([np.ravel(tensor) for tensor in tensors]).astype(np.float64))
    threshold = np.sort(sizes)[-math.ceil(share * sizes.size)]

    def of(tensor):
        size = np.abs(tensor.astype(np.float64))
        kept = (size >= threshold) & (size > 0)
        return np.where(kept, np.sign(tensor) * (size[kept].mean() if kept.any() else 0), 0)

    return [of(tensor) for tensor in tensors]


def of_one(tensor, share):
    (codes,) = largest_as_codes([tensor], share)
    return codes


class LargestTest(parameterized.TestCase, tf.test.TestCase):
    @settings(deadline=None, max_examples=40)
    @given(
        of_numpy.arrays(np.float32, st.sampled_from([(1,), (7,), (3, 5)]), elements=FLOATS),
        of_numpy.arrays(np.float32, st.sampled_from([(0,), (4,)]), elements=FLOATS),
        st.sampled_from([1e-9, 0.1, 0.5, 0.97, 1.0]),
    )
    def test_equals_its_definition(self, one, other, share):
        actual = largest_as_codes([one, other], share)
        for codes, expected in zip(actual, oracle([one, other], share), strict=True):
            self.assertAllClose(codes, expected, rtol=1e-5, atol=0)

    @parameterized.parameters(1e-25, 1.0, 1e25)
    def test_many_elements_of_any_magnitude(self, magnitude):
        rng = np.random.default_rng(0)
        tensors = [
            (rng.normal(size=shape) * magnitude * factor).astype(np.float32)
            for shape, factor in (([128, 400], 1), ([5, 50, 9], 3), ([11], 0.1))
        ]
        for share in (0.001, 0.04, 0.3):
            actual = largest_as_codes(tensors, share)
            for codes, expected in zip(actual, oracle(tensors, share), strict=True):
                self.assertAllClose(codes, expected, rtol=1e-4, atol=0)
            total = sum(tensor.size for tensor in tensors)
            kept = sum(np.count_nonzero(codes) for codes in actual)
            self.assertEqual(kept, math.ceil(share * total))

    def test_about_the_given_share_of_many_elements_is_kept(self):
        """Includes rows and columns of very different sizes, and several tensors."""
        rng = np.random.default_rng(0)
        noise = rng.normal(size=[700, 512])
        for factors in (1.0, np.exp(rng.normal(size=512) * 2), np.exp(rng.normal(size=[700, 1]))):
            tensor = (noise * factors).astype(np.float32)
            for share in (0.01, 0.1):
                actual = largest_as_codes([tensor[:650], tensor[650:], tensor[:1, :3]], share)
                kept = np.concatenate([codes.numpy() != 0 for codes in actual[:2]])
                self.assertAllClose(kept.mean(), share, rtol=5 / np.sqrt(share * 2**16))
                self.assertGreaterEqual(np.abs(tensor[kept]).min(), np.abs(tensor[~kept]).max())
                size = np.abs(tensor[:650][kept[:650]]).mean(dtype=np.float64)
                self.assertAllClose(
                    np.abs(actual[0])[kept[:650]], size + 0 * tensor[:650][kept[:650]], rtol=1e-4
                )

    def test_elements_of_equal_size_are_all_kept(self):
        tensor = tf.constant([2.0, -1.0, 1.0, 1.0, 0.5])
        self.assertAllClose(of_one(tensor, 0.4), [1.25, -1.25, 1.25, 1.25, 0.0])
        self.assertAllEqual(of_one(tf.zeros([4, 2]), 0.25), np.zeros([4, 2]))
        self.assertAllEqual(of_one(tf.constant([0.0, 3.0, 0.0]), 1.0), [0.0, 3.0, 0.0])

    @parameterized.parameters(np.nan, np.inf, -np.inf)
    def test_non_finite_values_are_kept(self, value):
        tensor = np.ones([50], np.float32)
        tensor[17] = value
        self.assertFalse(np.isfinite(of_one(tensor, 0.02).numpy()).all())

    @parameterized.parameters("float16", "bfloat16")
    def test_other_types_are_computed_in_float32(self, dtype):
        tensor = tf.cast(np.random.default_rng(1).normal(size=999), dtype)
        actual = of_one(tensor, 0.1)
        self.assertEqual(actual.dtype, dtype)
        expected = tf.cast(of_one(tf.cast(tensor, tf.float32), 0.1), dtype)
        self.assertAllEqual(actual, expected)

    def test_shapes(self):
        for shape in ([], [0], [3, 0], [1, 1], [2, 3, 4]):
            self.assertEqual(of_one(tf.ones(shape), 0.5).shape, shape)
        self.assertEqual(largest_as_codes([], 0.5), [])

    def test_bad_arguments_are_refused(self):
        for share in (0, -0.1, 1.5, float("nan")):
            with self.assertRaisesRegex(ValueError, "`share` must be above 0.*Received: share"):
                of_one(tf.ones([3]), share)

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def of_unknown_shape(tensor):
            return of_one(tensor, 0.5)

        with self.assertRaisesRegex(ValueError, "`tensors` must have a static shape"):
            of_unknown_shape(tf.ones([3]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
