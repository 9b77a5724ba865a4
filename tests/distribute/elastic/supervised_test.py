"""`run_supervised` forks the program, or starts it anew if a fork would not work."""

import glob
import os
import subprocess
import sys
import tempfile

import pytest
import tensorflow as tf

# Loses a peer in the first child, or starts itself with one argument less.
PROGRAM = """
import ctypes, os, subprocess, sys, threading
import tensorflow as tf
from terngrad_tf.distribute import PeerError, run_supervised
print("loaded")
PAUSE = ctypes.CDLL(None).pause
{before}
def main():
    if len(sys.argv) > 2:
        return subprocess.run(sys.orig_argv[:-1], check=True)
    print("sum", int(tf.reduce_sum(tf.constant([1, 2]))), flush=True)
    if not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        raise PeerError("worker 1 is out of reach")
run_supervised(main, max_restarts=2)
"""


class SupervisedTest(tf.test.TestCase):
    def run_program(self, before, *arguments):
        """Returns the lines of a program that does something before `run_supervised`."""
        path = os.path.join(tempfile.mkdtemp(dir=self.get_temp_dir()), "lost")
        command = [sys.executable, "-c", PROGRAM.format(before=before), path, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("out of reach; restart 1 of 2", done.stderr)
        return done.stdout.splitlines()

    @pytest.mark.skipif(bool(glob.glob("/dev/nvidia*")), reason="starts anew where a GPU is")
    def test_a_child_need_not_load_the_program_again(self):
        self.assertEqual(self.run_program(""), ["loaded", "sum 3", "sum 3"])

    @pytest.mark.slow
    def test_a_program_that_a_child_starts_has_its_own_supervisor(self):
        for before, loads in (("", 2), ("tf.config.list_physical_devices()", 5)):
            lines = self.run_program(before, "starts another")
            self.assertEqual(sorted(lines), ["loaded"] * loads + ["sum 3"] * 2, before)

    @pytest.mark.slow
    def test_a_program_that_used_tensorflow_or_threads_starts_anew(self):
        for before in (
            "tf.config.list_physical_devices()",
            "threading.Thread(target=threading.Event().wait, daemon=True).start()",
            # As a library starts one.
            "ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, PAUSE, None)",
        ):
            lines = self.run_program(before)
            # The supervisor writes its line last.
            self.assertEqual(sorted(lines), ["loaded"] * 3 + ["sum 3"] * 2, before)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
