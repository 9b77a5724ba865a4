"""Tests of the lines that name the process at fault."""

import sys

import pytest
import tensorflow as tf

from terngrad_tf.common import messages
from terngrad_tf.distribute.communication import failures, peers
from terngrad_tf.distribute.communication.pauses import Pauses

NAMES, ADDRESSES = ("worker 0", "worker 1"), ("a:2222", "b:2222")
# What TensorFlow tells a process that was suspended.
SUSPENDED = (
    "Collective ops is aborted by: Unexpected heartbeat request from an already-in-error task:"
    " /job:worker/replica:0/task:{0} with existing error: UNAVAILABLE: Task"
    " /job:worker/replica:0/task:{0} heartbeat timeout."
    "\nRPC: /tensorflow.CoordinationService/Heartbeat"
)


class PeersTest(tf.test.TestCase):
    def test_a_process_that_was_suspended_blames_no_other(self):
        for index, name in enumerate(NAMES):
            tasks = peers.Tasks(NAMES, ADDRESSES, index)
            line = failures.explain(SUSPENDED.format(index), tasks)
            told = (
                f"the others did not hear from {name} ({ADDRESSES[index]}), this process, in time"
            )
            self.assertEqual(line, told)
            self.assertEqual(messages.find(line).code, "E12")

    def test_the_others_name_the_process_that_was_suspended(self):
        line = failures.explain(SUSPENDED.format(1), peers.Tasks(NAMES, ADDRESSES, 0))
        self.assertEqual(line, "lost worker 1 (b:2222)")

    def test_pauses_of_this_process(self):
        pauses = Pauses()
        with pauses.sleep_of(0.0):
            self.assertIsNone(pauses.recent())
        with pauses.sleep_of(-20.0):  # the thread should have woken 20 s ago
            self.assertAlmostEqual(pauses.recent(), 20.0, delta=5.0)
        self.assertAlmostEqual(pauses.recent(), 20.0, delta=5.0)
        line = (
            "lost worker 0 (a:2222: connection refused); this process itself did not run for 20 s"
        )
        self.assertEqual(messages.find(line).code, "E12")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
