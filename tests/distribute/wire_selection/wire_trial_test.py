"""Tests of wires that steps try; `cluster_test.py` lets processes try them."""

import sys
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.distribute.wire_selection import wire_trial
from terngrad_tf.distribute.wire_selection.wire_trial import PERIOD, REST, TRIES, WireTrial

WIRES = ("auto", "sparse", "alltoall")


class Steps:
    """Exchanges of a process; each takes the seconds set for its wire."""

    def __init__(self, taken=0):
        self.trial = WireTrial(WIRES, taken)
        self.seconds = tf.Variable([3.0, 1.0, 2.0])
        # The largest values that other processes report.
        self.others = tf.Variable(tf.zeros([1 + len(WIRES)]))
        self._step = tf.function(lambda: self.trial.exchange(self._by), autograph=False)

    def _by(self, wire):
        number = WIRES.index(wire)
        self.trial.learn(tf.maximum(self.trial.told(), self.others), self.seconds[number])
        return tf.constant(number)

    def take(self, count):
        """The wires that the next `count` exchanges take."""
        return [int(self._step()) for _ in range(count)]


class WireTrialTest(tf.test.TestCase):
    def test_the_quickest_is_taken_after_each_was_tried_in_turn(self):
        steps = Steps()
        self.assertIsNone(steps.trial.found)
        self.assertEqual(steps.take(REST), [0] * REST)
        self.assertEqual(steps.take(3 * TRIES), [0] * TRIES + [1] * TRIES + [2] * TRIES)
        self.assertIsNone(steps.trial.found)
        # All processes share their results in the next exchange.
        self.assertEqual(steps.take(5), [0, 1, 1, 1, 1])
        wire, seconds = steps.trial.found
        self.assertEqual(wire, "sparse")
        self.assertEqual(seconds, {"auto": 3.0, "sparse": 1.0, "alltoall": 2.0})

    def test_a_trial_is_repeated(self):
        with mock.patch.object(wire_trial, "PERIOD", 30):
            steps = Steps(taken=1)
            self.assertEqual(steps.take(30)[-1], 1)
            steps.seconds.assign([3.0, 5.0, 2.0])
            self.assertEqual(steps.take(30)[-1], 2)
            self.assertEqual(steps.take(REST), [2] * REST)

    def test_a_hardly_quicker_wire_is_not_taken(self):
        steps = Steps(taken=2)
        steps.seconds.assign([2.0, 1.92, 2.0])
        self.assertEqual(steps.take(REST + 3 * TRIES + 2)[-1], 2)
        self.assertEqual(steps.trial.found[0], "alltoall")

    def test_the_slowest_process_counts(self):
        steps = Steps()
        steps.others.assign([0.0, 0.0, 9.0, 0.0])
        self.assertEqual(steps.take(REST + 3 * TRIES + 2)[-1], 2)
        self.assertEqual(steps.trial.found[1], {"auto": 3.0, "sparse": 9.0, "alltoall": 2.0})

    def test_a_process_with_a_lower_count_follows_the_others(self):
        steps = Steps()
        steps.others.assign([REST + 2.0 * TRIES - 1, 0.0, 0.0, 0.0])
        self.assertEqual(steps.take(2), [0, WIRES.index("alltoall")])

    def test_the_first_exchanges_after_another_wire_do_not_count(self):
        steps = Steps()
        steps.take(REST)
        few = TRIES // 2
        for first in ([3.0, 100.0, 2.0], [3.0, 100.0, 2.0], [3.0, 100.0, 0.1]):
            steps.seconds.assign(first)
            steps.take(few)
            steps.seconds.assign([3.0, 1.0, 2.0])
            steps.take(TRIES - few)
        steps.take(1)
        self.assertEqual(steps.trial.found[1], {"auto": 3.0, "sparse": 1.0, "alltoall": 2.0})

    def test_a_trial_is_a_small_part(self):
        self.assertLess(3 * TRIES, 0.025 * PERIOD)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
