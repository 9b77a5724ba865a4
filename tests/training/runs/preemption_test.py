"""SIGTERM ends a process at once if there is nothing to save."""

import subprocess
import sys

import pytest
import tensorflow as tf

from terngrad_tf.common import preemption

# Gets SIGTERM during an endless step, after some steps or none, or before the last ones.
PROGRAM = """
import os, signal, sys, time
from terngrad_tf.common import preemption
preemption._LONGEST_STEP_SECONDS = 0.5
told = []
with preemption.stops_on_sigterm(
    lambda: print("asked", flush=True), lambda: sys.argv[1] != "new", lambda e: print(e)
) as step_ended:
    os.kill(os.getpid(), signal.SIGTERM)
    if sys.argv[1] == "another":
        step_ended(True)
    time.sleep(100)
"""


class PreemptionTest(tf.test.TestCase):
    def end(self, state):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, state],
            capture_output=True,
            text=True,
            timeout=90,
        )

    def test_before_the_end_of_the_first_step_the_process_ends_at_once(self):
        ended = self.end("new")
        self.assertEqual(ended.returncode, preemption.STATUS, ended.stderr)
        why = "told to stop by SIGTERM, before the first step ended; nothing of this start is lost"
        self.assertEqual(ended.stdout, f"{why}\n")
        (line,) = ended.stderr.splitlines()
        self.assertEqual(line, f"-c: error: {why}; the same command goes on [terngrad explain E17]")

    def test_an_endless_step_is_abandoned(self):
        ended = self.end("stepped")
        self.assertEqual(ended.returncode, preemption.STATUS, ended.stderr)
        self.assertStartsWith(ended.stdout, "asked\n")
        self.assertIn("no step ended within 0.5 s; what was saved before is kept", ended.stderr)

    def test_an_endless_step_after_another_is_abandoned(self):
        self.assertEqual(self.end("another").returncode, preemption.STATUS)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
