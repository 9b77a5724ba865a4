"""The coordinator loses machines that are silent, and only these."""

import itertools
import sys
import threading
import time
import unittest
from unittest import mock

import pytest

from terngrad_tf.launcher import coordinator
from terngrad_tf.launcher.coordinator import STATUS_PEER, Coordinator, Plan


class _Machine:
    """A machine whose process ends after some seconds, without any other message."""

    name, slots, beats = "far", 1, True

    def __init__(self, seconds):
        self._seconds = seconds

    def open(self, events):
        self._events = events

    def address(self, slot):
        return "far:2222"

    def send(self, message):
        if "start" in message:
            end = (self, {"exit": [0, 0, ""]})
            timer = threading.Timer(self._seconds, self._events.put, [end])
            timer.daemon = True
            timer.start()

    def close(self):
        pass

    def reaches(self):
        return False


def _run(seconds):
    plan = Plan(command=["true"], folder="/")
    return Coordinator(plan, [_Machine(seconds)], lambda *_: None, lambda _: None).run()


class SilenceTest(unittest.TestCase):
    def test_a_silent_machine_is_lost(self):
        with mock.patch.object(coordinator, "SILENCE_SECONDS", 1.0):
            status, line = _run(300)
        self.assertEqual((status, line), (STATUS_PEER, "lost far: no sign of life for 1 s"))

    def test_machines_outlive_the_time_for_which_the_launcher_was_stopped(self):
        # As after Ctrl-Z and `fg`: the clock went on, and no message was read.
        hours, clock = itertools.count(0, 3600), time.monotonic
        with mock.patch.object(coordinator.time, "monotonic", lambda: clock() + next(hours)):
            self.assertEqual(_run(2), (0, None))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
