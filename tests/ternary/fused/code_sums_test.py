"""Tests of sums of codes, against rounding each tensor of each replica."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf import ternary
from tests.ternary import half_precision


def check(shapes, replicas, num_replicas, rounding, dtype=tf.float32, levels=1):
    rng = np.random.default_rng(1)
    gradients = [[tf.cast(rng.standard_normal(shape), dtype) for shape in shapes] for _ in replicas]
    scales = [0.0, 0.7, 2.0, np.inf][: len(shapes)] + [1.0] * (len(shapes) - 4)
    tensors = [3 + 2 * i for i in range(len(shapes))]
    sums = ternary.sum_codes(
        gradients,
        scales,
        seed=5,
        step=2**33 + 1,
        replicas=replicas,
        num_replicas=num_replicas,
        rounding=rounding,
        levels=levels,
        tensors=tensors,
    )
    for i, got in enumerate(sums):
        codes = [
            ternary.ternarize(
                gradients[k][i],
                scales[i],
                seed=5,
                step=2**33 + 1,
                tensor=tensors[i],
                replica=replica,
                num_replicas=num_replicas,
                rounding=rounding,
                levels=levels,
            ).numpy()
            for k, replica in enumerate(replicas)
        ]
        np.testing.assert_array_equal(got.numpy(), np.sum(codes, axis=0).reshape(shapes[i]))


class CodeSumsTest(tf.test.TestCase, parameterized.TestCase):
    @settings(max_examples=5, deadline=None, derandomize=True)
    @given(
        shapes=st.lists(
            st.lists(st.integers(0, 30), max_size=2).map(tuple), min_size=1, max_size=5
        ),
        num_replicas=st.sampled_from([1, 3, 8, 11]),
        rounding=st.sampled_from(ternary.ROUNDINGS),
    )
    def test_sums_are_those_of_the_replicas_codes(self, shapes, num_replicas, rounding):
        check(shapes, range(num_replicas), num_replicas, rounding)

    @pytest.mark.slow
    def test_large_tensors_with_and_without_a_last_row_that_is_not_whole(self):
        for rounding in ternary.ROUNDINGS:
            check([(2**20 + 700,), (5,), (1024, 1024), (3, 3)], range(3), 3, rounding)

    def test_finer_codes(self):
        check([(2**20 + 700,), (5,), (3, 3)], range(3), 3, "correlated", levels=7)
        check([(600,), (7,)], [1, 3, 9], 10, "independent", levels=127)

    def test_only_large_tensors(self):
        check([(2048, 512)], range(2), 2, "correlated")

    def test_a_subset_of_replicas_draws_as_among_all(self):
        for rounding in ternary.ROUNDINGS:
            check([(600,), (7,)], [1, 3, 9], 10, rounding)

    @parameterized.parameters(*half_precision.DTYPES)
    def test_half_precision(self, dtype):
        if not half_precision.compiles(dtype):
            self.skipTest(f"XLA compiles no {dtype.name} for this processor")
        check([(2**20 + 1,), (100,)], range(2), 2, "correlated", dtype)

    def test_no_tensors_give_no_sums(self):
        self.assertEqual(
            ternary.sum_codes([[]], [], seed=0, step=0, replicas=[0], num_replicas=1), []
        )

    def test_an_unknown_rounding_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`rounding` must be one of"):
            check([(3,)], [0], 1, "nearest")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
