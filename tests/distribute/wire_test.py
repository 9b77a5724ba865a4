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
        for num_hosts, ratio in ((2, 19.5), (4, 13.0), (8, 10.0)):
            layout = wire.Layout(FOUR_MEGA, num_hosts, 1)
            traffic = layout.traffic(layout.choose("auto"))
            self.assertIn(traffic.wire, wire.LOSSLESS)
            self.assertGreaterEqual(traffic.compression_ratio, ratio)

    def test_both_ways_is_twenty_times_smaller_for_any_number_of_hosts(self):
        for num_hosts in (2, 4, 8, 64, 512):
            traffic = wire.Layout(FOUR_MEGA, num_hosts, 1).traffic("both_ways")
            self.assertBetween(traffic.compression_ratio, 19.5, 20.01)

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=5),
        num_hosts=st.integers(1, 40),
        num_local=st.integers(1, 9),
    )
    def test_auto_is_the_cheapest_lossless_wire(self, sizes, num_hosts, num_local):
        layout = wire.Layout(tuple(sizes), num_hosts, num_local)
        chosen = layout.choose("auto")
        self.assertEqual(
            layout.received_words(chosen), min(layout.received_words(w) for w in wire.LOSSLESS)
        )

    def test_one_worker_exchanges_nothing(self):
        traffic = wire.Layout((100,), 1, 1).traffic("allgather")
        self.assertEqual(traffic.received_bytes, 0)
        self.assertEqual(traffic.compression_ratio, 1.0)

    def test_traffic_of_buckets_adds_up(self):
        total = wire.float32_traffic(10, 2) + wire.Layout((100,), 2, 1).traffic("lanes")
        self.assertEqual(total.wire, "lanes")
        self.assertEqual(total.float32_bytes, 4 * 110)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
