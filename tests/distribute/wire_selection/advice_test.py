"""Tests of the times that `advise` expects; `cluster_test.py` calls it in a cluster."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import ternary
from terngrad_tf.distribute import WIRES, Advice, TernGradStrategy, advise
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.plan import Job
from terngrad_tf.distribute.exchange.traffic import float_traffic
from terngrad_tf.distribute.exchange.wires import streams
from terngrad_tf.distribute.wire_selection.advice import computing_seconds
from terngrad_tf.distribute.wire_selection.exchange_model import MODES, ExchangeModel
from terngrad_tf.distribute.wire_selection.links import Link

BUCKETS = ((1000, 70), (300_000,))
FLOATS = (5, 6)
# A byte takes a second; all else takes no time.
BYTES_ONLY = Link(1.0, 0.0)
ALL = ("allgather", "alltoall", "allreduce", "bidirectional")


class ExchangeModelTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        mode=ALL, members=(2, 4), num_local=(1, 3), how=((1, False), (1, True), (7, True))
    )
    def test_bytes_match_the_traffic(self, mode, members, num_local, how):
        model = ExchangeModel(Job(members, num_local, BUCKETS, FLOATS, *how), BYTES_ONLY, 0.1)
        traffic = [wires.choose(mode, sizes, members, num_local, *how).traffic for sizes in BUCKETS]
        expected = sum(t.received_bytes for t in traffic)
        expected += float_traffic(4 * sum(FLOATS), members).received_bytes
        self.assertNear(model.seconds(mode, 0.0), expected, 2.0)

    def test_float_gradients_take_a_ring_whatever_the_run_sent(self):
        for job in (Job(4, 1, BUCKETS, FLOATS), Job(4, 1, (), (1000, 70, 300_000, 5, 6))):
            expected = float_traffic(4 * 301_081, 4).received_bytes
            self.assertNear(
                ExchangeModel(job, BYTES_ONLY, 0.1).seconds("float32", 1.0), expected, 2.0
            )

    def test_a_run_with_float_gradients_gets_advice_on_wires(self):
        floats = (1000, 300_000)
        model = ExchangeModel(Job(2, 1, (), floats), BYTES_ONLY, 0.1)
        expected = wires.choose("allgather", floats, 2, 1).traffic.received_bytes
        self.assertNear(model.seconds("allgather", 0.0), expected, 2.0)

    @parameterized.parameters(0.001, 0.016, 0.06, 0.13, 0.3, 0.6)
    @pytest.mark.slow
    def test_streams_have_the_expected_length(self, share):
        rng = np.random.default_rng(0)
        signs = rng.choice([0, 2], 200_000)
        digits = np.where(rng.random(200_000) < share, signs, 1).astype(np.int32)
        words = ternary.pack(tf.constant(digits), streams.BASE)
        stream = ternary.compress(words)
        expected = streams.expected_length(words.shape[0], share)
        self.assertBetween(stream.shape[0] / expected, 0.9, 1.1)

    def test_arithmetic_is_counted_in_the_units_that_the_run_measured(self):
        model = ExchangeModel(Job(2, 1, BUCKETS, ()), Link(0.0, 0.0), 0.1)
        unit = model.unit_seconds("allgather", 0.5)
        self.assertNear(model.seconds("allgather", unit), 0.5, 1e-9)
        self.assertGreater(model.seconds("sparse", unit), 0.5)
        self.assertEqual(model.seconds("float32", unit), 0.0)

    def test_more_messages_take_longer(self):
        model = ExchangeModel(Job(2, 1, BUCKETS, ()), Link(0.0, 1.0), 0.1)
        # The messages of the scales, and one or two per bucket.
        self.assertEqual(model.seconds("allgather", 0.0), 4.0)
        self.assertEqual(model.seconds("alltoall", 0.0), 6.0)
        self.assertEqual(model.seconds("float32", 0.0), 2.0)


class AdviceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.named_parameters(
        ("processes_are_alike", [3.0, 3.0], 20.0, 3.0),
        ("one_computes_longer_and_the_other_waits_in_its_exchange", [100.0, 10.0], 20.0, 100.0),
        ("one_receives_slowly_and_the_other_waits_in_its_rest", [12.0, 250.0], 108.0, 12.0),
        ("an_exchange_takes_longer_than_expected", [12.0, 12.0], 5.0, 12.0),
    )
    def test_no_wait_counts_as_computation_if(self, rests, exchange, expected):
        self.assertEqual(computing_seconds(rests, [120.0, 119.0], exchange), expected)

    def advice(self, current, **seconds):
        return Advice(current, seconds, 0.02, 0.05, Link(8 / 9.4e9, 1e-4))

    def test_the_quickest_mode_is_named_with_its_gain(self):
        result = self.advice("allgather", float32=0.03, allgather=0.039, sparse=0.06)
        self.assertEqual(result.quickest, "float32")
        self.assertEqual(
            str(result),
            "links of 9.4 Gbit/s: float32 (grad_bits=32) would be 1.3 times faster than"
            ' wire="allgather". A step took 50 ms; expected times in ms are float32 30,'
            " allgather 39, sparse 60; local steps (DiLoCo, sync_every=32) 20",
        )

    def test_a_few_per_cent_are_not_worth_a_change(self):
        result = self.advice("allgather", float32=0.1, allgather=0.039, sparse=0.038)
        self.assertEqual(result.quickest, "allgather")
        self.assertStartsWith(
            str(result), "links of 9.4 Gbit/s: no other mode would be much faster than"
        )

    def test_slow_links_are_shown_in_megabits(self):
        self.assertEqual(str(Link(8 / 98.7e6, 0.0)), "98.7 Mbit/s")
        self.assertEqual(str(Link(8 / 999.7e6, 0.0)), "1.0 Gbit/s")

    def test_every_wire_is_among_the_modes(self):
        self.assertEqual({*MODES, "auto"}, {*WIRES, "float32", "4 bits"})

    def test_4_bits_take_the_wire_with_the_fewest_bytes(self):
        model = ExchangeModel(Job(4, 1, BUCKETS, FLOATS, 1, True), BYTES_ONLY, 0.1)
        finer = ExchangeModel(Job(4, 1, BUCKETS, FLOATS, 7, True), BYTES_ONLY, 0.1)
        least = min(finer.seconds(wire, 0.0) for wire in ("allgather", "alltoall", "allreduce"))
        self.assertEqual(model.seconds("4 bits", 0.0), least)

    def test_a_single_process_has_no_links(self):
        with self.assertRaisesRegex(ValueError, "`strategy` must be one over several processes"):
            advise(TernGradStrategy(2))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
