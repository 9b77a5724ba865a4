"""Tests of the chief's waiting for servers in asynchronous training."""

import sys
import threading

import pytest
import tensorflow as tf

from terngrad_tf.distribute import PeerError
from terngrad_tf.parameter_server.loop import StepQueue


class Cluster:
    """A fake `ParameterServerCluster` whose server does not answer."""

    def check_peers(self):
        raise PeerError("lost ps 0")


class StepQueueTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_calls_to_a_lost_server_are_abandoned(self):
        with self.assertRaisesRegex(PeerError, "lost ps 0"):
            StepQueue(Cluster()).call(threading.Event().wait)

    def test_results_and_errors_of_calls_arrive(self):
        steps = StepQueue(Cluster())
        self.assertEqual(steps.call(lambda: 7), 7)
        self.assertIsNone(steps.call(lambda: None))
        with self.assertRaisesRegex(ValueError, "no number"):
            steps.call(lambda: int("no number"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
