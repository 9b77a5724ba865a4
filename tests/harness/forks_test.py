"""Forks look like programs that Python started."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pytest

from tests import forks

PROGRAM = """
import os, sys, time
print(__name__, os.path.basename(__file__), sys.argv[1:], os.environ.get("TF_OTHER"), flush=True)
how = sys.argv[1]
if how == "fails":
    raise ValueError("why")
if how == "kills":
    os.kill(os.getpid(), 9)
if how == "waits":
    time.sleep(100)
sys.exit(int(how))
"""


class ForksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = pathlib.Path(folder.name, "script.py")
        self.script.write_text(PROGRAM)

    def start(self, how, **variables):
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", **variables)
        pipe = subprocess.PIPE
        command = forks.command(self.script, how)
        started = subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
        self.addCleanup(started.communicate)
        self.addCleanup(started.kill)
        return started

    def test_output_and_status_are_the_programs(self):
        for how, variables, status in (
            ("0", {}, 0),
            ("5", {}, 5),
            ("fails", {}, 1),
            ("kills", {}, -9),
            ("5", {"TF_OTHER": "1"}, 5),  # does not fork
        ):
            started = self.start(how, **variables)
            out, errors = started.communicate(timeout=100)
            self.assertEqual(started.returncode, status, errors)
            self.assertEqual(out, f"__main__ script.py ['{how}'] {variables.get('TF_OTHER')}\n")
            self.assertEqual("ValueError: why" in errors, how == "fails")

    def test_signals_reach_the_program(self):
        for number in (15, 9):
            started = self.start("waits")
            self.assertIn("waits", started.stdout.readline())
            started.send_signal(number)
            # The pipe closes when the program has ended, too.
            started.communicate(timeout=50)
            self.assertEqual(started.returncode, -number)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
