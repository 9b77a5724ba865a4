"""Tests of sparse gradients, rounded as rows or whole tensors, whichever takes fewer bytes."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import Quantization, TernGradStrategy
from terngrad_tf.ternary import rows as row_codes
from tests.distribute import processes
from tests.distribute.exchange import sparse_rows_cases as cases

PROGRAM = pathlib.Path(cases.__file__)


def error(got, want):
    return np.sum(np.square(got - want)) / np.sum(np.square(want))


def message_bytes(count, levels=1):
    """Bytes of a member's positions, scales and codes of `count` rows."""
    return 4 * (count + row_codes.num_row_words(count, cases.WIDTH, levels))


def most_distinct(replicas):
    return max(len(np.unique(cases.positions_of(k))) for k in replicas)


class SparseRowsTest(tf.test.TestCase):
    def test_few_rows_travel_as_rows(self):
        strategy = TernGradStrategy(4)
        changes, table = cases.take_steps(strategy, 30)
        want = cases.sums(4)
        # Only rows that a replica used change.
        self.assertAllEqual((changes[0] != 0).any(1), (want != 0).any(1))
        self.assertBetween(error(changes[0], want), 0.02, 0.4)
        self.assertLess(error(np.mean(changes, 0), want), 0.4 / 30)
        for copy in table.value.values[1:]:
            self.assertAllEqual(copy, table.value.values[0])
        # Each replica receives the others' messages, padded to the longest, and the numbers of
        # rows.
        traffic, count = strategy.traffic, most_distinct(range(4))
        self.assertEqual(traffic.received_bytes, 3 * (message_bytes(count) + 4))
        reads = sum(len(cases.positions_of(k)) for k in range(4)) // 4
        self.assertNear(traffic.float32_bytes, 3 * reads * (4 * cases.WIDTH + 8), 3 * 72)

    @pytest.mark.slow
    def test_many_rows_travel_as_a_whole_tensor(self):
        strategy = TernGradStrategy(4)
        # Its codes are finer than those of rows.
        whole = TernGradStrategy(4, grad_bits=4, sparse_as_dense=True)
        (change,), _ = cases.take_steps(strategy, 1, rows=40)
        (expected,), _ = cases.take_steps(whole, 1, rows=40)
        self.assertAllEqual(change, expected)
        received = whole.traffic.received_bytes + 3 * 4
        self.assertEqual(strategy.traffic.received_bytes, received)

    @pytest.mark.slow
    def test_finer_codes_and_adam(self):
        exact, _ = cases.take_steps(
            TernGradStrategy(2, grad_bits=32, sparse_as_dense=True),
            2,
            optimizer=lambda: keras.optimizers.Adam(0.1),
        )
        got, _ = cases.take_steps(
            TernGradStrategy(2, grad_bits=8), 2, optimizer=lambda: keras.optimizers.Adam(0.1)
        )
        # The first step depends on signs, which rounding keeps except for the smallest elements.
        self.assertLess(error(got[1], exact[1]), 0.05)

    @pytest.mark.slow
    def test_rows_stay_floats(self):
        want = cases.sums(2)
        for options in (
            {"grad_bits": 32},
            {"sparse_as_dense": False},
            {"quantization": Quantization(rotate=False)},
            {"quantization": Quantization(min_size=cases.ROWS * cases.WIDTH + 1)},
            {"quantization": Quantization(float_steps=lambda step: step >= 0)},
        ):
            strategy = TernGradStrategy(2, **options)
            (change,), _ = cases.take_steps(strategy)
            self.assertAllClose(change, want, atol=1e-5)
            self.assertEqual(strategy.traffic.received_bytes, strategy.traffic.float32_bytes)

    @pytest.mark.slow
    def test_some_steps_are_float(self):
        quantization = Quantization(float_steps=lambda step: step % 2 == 0)
        strategy = TernGradStrategy(2, quantization=quantization)
        cases.take_steps(strategy, 2, optimizer=lambda: keras.optimizers.Adam(0.1))
        changes, _ = cases.take_steps(strategy, 2)
        self.assertAllClose(changes[0], cases.sums(2), atol=1e-5)
        self.assertGreater(error(changes[1], cases.sums(2)), 0.02)

    @pytest.mark.long
    def test_bits_depend_on_seed_and_step_only(self):
        first, _ = cases.take_steps(TernGradStrategy(2), 3)
        again, _ = cases.take_steps(TernGradStrategy(2), 3)
        for a, b in zip(first, again, strict=True):
            self.assertAllEqual(a, b)
        self.assertNotAllEqual(first[0], first[1])
        (change,), _ = cases.take_steps(TernGradStrategy(2), 1, start=2)
        self.assertAllEqual(change, first[2])
        other = TernGradStrategy(2, quantization=Quantization(seed=1))
        self.assertNotAllEqual(cases.take_steps(other)[0][0], first[0])

    @pytest.mark.slow
    def test_a_nan_reaches_all(self):
        def with_nan(rows):
            rows[0, 0] = np.nan
            return rows

        for rows in (cases.ROWS, 40):
            strategy = TernGradStrategy(2)
            (change,), table = cases.take_steps(strategy, 1, rows=rows, change=with_nan)
            for replica in range(2):
                self.assertAllEqual(np.isnan(change[cases.positions_of(replica)[0]]), [True] * 16)
            self.assertAllEqual(*(np.isnan(copy) for copy in table.value.values[:2]))

    @pytest.mark.slow
    def test_two_processes_agree(self):
        first, second = processes.run(PROGRAM, 2, self.get_temp_dir(), job="work")
        for name, value in first.items():
            if not name.endswith("/bytes"):
                self.assertAllEqual(value, second[name], name)
        want = cases.sums(4)
        self.assertBetween(error(first["rows"][0], want), 0.02, 0.4)
        self.assertLess(error(first["finer"][0], want), 0.001)
        self.assertAllClose(first["float"][0], want, atol=1e-5)
        self.assertAllClose(first["steps"][0], want, atol=1e-5)
        self.assertAllEqual(first["steps"][1], first["rows"][1])
        self.assertLess(error(first["whole"][0], cases.sums(4, rows=40)), 0.6)
        # A process sums the rows of its replicas before it rounds them.
        distinct = [
            len(np.unique(np.concatenate([cases.positions_of(k) for k in of_process])))
            for of_process in ((0, 1), (2, 3))
        ]
        for result in (first, second):
            received, _ = result["rows/bytes"]
            self.assertEqual(received, message_bytes(max(distinct)) + 4)
            self.assertLess(result["whole/bytes"], message_bytes(40))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
