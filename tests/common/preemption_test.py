"""SIGTERM stops training only if the process that trains gets it."""

import multiprocessing
import signal
import sys
import unittest

import pytest

from terngrad_tf.common import preemption


class PreemptionTest(unittest.TestCase):
    def test_forked_processes_end_without_stopping_training(self):
        asked = []
        with preemption.stops_on_sigterm(lambda: asked.append("to stop")):
            child = multiprocessing.get_context("fork").Process(
                target=signal.raise_signal, args=[signal.SIGTERM]
            )
            child.start()
            child.join()
        self.assertEqual(child.exitcode, -signal.SIGTERM)
        self.assertEqual(asked, [])
        self.assertIs(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
