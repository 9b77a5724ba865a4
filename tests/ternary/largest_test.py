"""Tests of the largest elements, all of one size."""

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


def oracle(tensor, share):
    sizes = np.abs(np.asarray(tensor, np.float64))
    threshold = np.sort(sizes, axis=None)[-math.ceil(share * sizes.size)]
    kept = (sizes >= threshold) & (sizes > 0)
    return np.where(kept, np.sign(tensor) * (sizes[kept].mean() if kept.any() else 0), 0)


class LargestTest(parameterized.TestCase, tf.test.TestCase):
    @settings(deadline=None, max_examples=40)
    @given(
        of_numpy.arrays(np.float32, st.sampled_from([(1,), (7,), (3, 5)]), elements=FLOATS),
        st.sampled_from([1e-9, 0.1, 0.5, 0.97, 1.0]),
    )
    def test_equals_its_definition(self, tensor, share):
        actual = largest_as_codes(tensor, share).numpy()
        self.assertAllClose(actual, oracle(tensor, share), rtol=1e-5, atol=0)

    @parameterized.parameters(1e-25, 1.0, 1e25)
    def test_many_elements_of_any_magnitude(self, magnitude):
        tensor = (np.random.default_rng(0).normal(size=[128, 512]) * magnitude).astype(np.float32)
        for share in (0.001, 0.04, 0.3):
            actual = largest_as_codes(tensor, share)
            self.assertAllClose(actual, oracle(tensor, share), rtol=1e-4, atol=0)
            self.assertEqual(np.count_nonzero(actual), math.ceil(share * tensor.size))

    def test_of_a_large_tensor_about_as_many(self):
        """With rows and columns of very different sizes, too."""
        rng = np.random.default_rng(0)
        noise = rng.normal(size=[700, 512])
        for factors in (1.0, np.exp(rng.normal(size=512) * 2), np.exp(rng.normal(size=[700, 1]))):
            tensor = (noise * factors).astype(np.float32)
            for share in (0.01, 0.1):
                actual = largest_as_codes(tensor, share).numpy()
                kept = actual != 0
                self.assertAllClose(kept.mean(), share, rtol=5 / np.sqrt(share * 2**16))
                self.assertGreaterEqual(np.abs(tensor[kept]).min(), np.abs(tensor[~kept]).max())
                self.assertAllClose(
                    np.abs(actual[kept]),
                    np.full(kept.sum(), np.abs(tensor[kept]).mean(dtype=np.float64)),
                    rtol=1e-4,
                )

    def test_elements_that_are_equally_large_are_all_kept(self):
        tensor = tf.constant([2.0, -1.0, 1.0, 1.0, 0.5])
        self.assertAllClose(largest_as_codes(tensor, 0.4), [1.25, -1.25, 1.25, 1.25, 0.0])
        self.assertAllEqual(largest_as_codes(tf.zeros([4, 2]), 0.25), np.zeros([4, 2]))
        self.assertAllEqual(largest_as_codes(tf.constant([0.0, 3.0, 0.0]), 1.0), [0.0, 3.0, 0.0])

    @parameterized.parameters(np.nan, np.inf, -np.inf)
    def test_what_is_not_finite_is_not_lost(self, value):
        tensor = np.ones([50], np.float32)
        tensor[17] = value
        self.assertFalse(np.isfinite(largest_as_codes(tensor, 0.02).numpy()).all())

    @parameterized.parameters("float16", "bfloat16")
    def test_other_types_are_computed_in_float32(self, dtype):
        tensor = tf.cast(np.random.default_rng(1).normal(size=999), dtype)
        actual = largest_as_codes(tensor, 0.1)
        self.assertEqual(actual.dtype, dtype)
        expected = tf.cast(largest_as_codes(tf.cast(tensor, tf.float32), 0.1), dtype)
        self.assertAllEqual(actual, expected)

    def test_shapes(self):
        for shape in ([], [0], [3, 0], [1, 1], [2, 3, 4]):
            self.assertEqual(largest_as_codes(tf.ones(shape), 0.5).shape, shape)

    def test_refuses(self):
        for share in (0, -0.1, 1.5, float("nan")):
            with self.assertRaisesRegex(ValueError, "`share` must be above 0.*Received: share"):
                largest_as_codes(tf.ones([3]), share)

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def of_unknown_shape(tensor):
            return largest_as_codes(tensor, 0.5)

        with self.assertRaisesRegex(ValueError, "`tensor` must have a static shape"):
            of_unknown_shape(tf.ones([3]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
