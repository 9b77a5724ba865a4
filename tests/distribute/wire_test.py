"""Tests of the wires' byte counts."""

import sys

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.distribute import wire

FOUR_MEGA = (4 * 2**20,)


class WireTest(tf.test.TestCase):
    def test_lossless_ratios_reach_the_goal(self):
        for num_processes, ratio in ((2, 19.5), (4, 13.0), (8, 10.0)):
            layout = wire.ExchangePlan(FOUR_MEGA, num_processes, 1)
            traffic = layout.traffic(layout.choose("auto"))
            self.assertIn(traffic.wire, wire.LOSSLESS)
            self.assertGreaterEqual(traffic.compression_ratio, ratio)

    def test_bidirectional_is_twenty_times_smaller_for_any_number_of_processes(self):
        for num_processes in (2, 4, 8, 64, 512):
            traffic = wire.ExchangePlan(FOUR_MEGA, num_processes, 1).traffic("bidirectional")
            self.assertBetween(traffic.compression_ratio, 19.5, 20.01)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=5),
        num_processes=st.integers(1, 40),
        num_local=st.integers(1, 9),
    )
    def test_auto_is_the_cheapest_lossless_wire(self, sizes, num_processes, num_local):
        layout = wire.ExchangePlan(tuple(sizes), num_processes, num_local)
        chosen = layout.choose("auto")
        self.assertEqual(
            layout.received_words(chosen), min(layout.received_words(w) for w in wire.LOSSLESS)
        )

    def test_one_replica_exchanges_nothing(self):
        traffic = wire.ExchangePlan((100,), 1, 1).traffic("allgather")
        self.assertEqual(traffic.received_bytes, 0)
        self.assertEqual(traffic.compression_ratio, 1.0)

    def test_traffic_of_buckets_adds_up(self):
        total = wire.float32_traffic(10, 2) + wire.ExchangePlan((100,), 2, 1).traffic("allreduce")
        self.assertEqual(total.wire, "allreduce")
        self.assertEqual(total.float32_bytes, 4 * 110)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
