"""Tests of the check that processes assign equal values; `state_cluster_test.py` has real ones."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute.private.replicas.agreement import agreed_by_processes
from tests.distribute.exchange.thread_processes import in_threads


class AgreementTest(tf.test.TestCase, parameterized.TestCase):
    def outcomes(self, values):
        """What each process, which assigns one of the values, returns or raises."""

        def outcome(process_group):
            value = tf.constant(values[process_group.rank])
            try:
                return agreed_by_processes(process_group, value, "values differ").numpy()
            except ValueError as error:
                return str(error)

        return in_threads(len(values), outcome)

    @parameterized.parameters(
        (np.float32(1), np.float32(1.000001)),
        (0.0, -0.0),
        (np.nan, np.nan),
        (np.inf, np.inf),
        (7, 7),
        (True, True),
        (np.int64(2**62), np.int64(2**62)),
    )
    def test_equal_values_pass_up_to_rounding(self, *values):
        self.assertAllEqual(self.outcomes(values), values)

    @parameterized.parameters(
        (1.0, 1.0001),
        (np.nan, 1.0),
        (1.0, np.inf),
        (np.inf, np.nan),
        (np.float64(1e100), np.float64(2e100)),
        (np.int64(10**9), np.int64(10**9 + 1)),
        (np.int64(2**60), np.int64(2**60 + 1)),
    )
    def test_different_values_are_refused_on_all_processes(self, *values):
        self.assertEqual(self.outcomes(values), ["values differ"] * 2)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
