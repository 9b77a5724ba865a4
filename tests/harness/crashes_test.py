"""A crash of one process of the tests fails one test, and all others run."""

import pathlib
import sys

import pytest
import tensorflow as tf

from tests.harness import inner_tests

NUM_FILES = 12
HOOKS = ["pytest_xdist_make_scheduler"]
CRASHES = """
import os, pathlib, time

def test_it():
    time.sleep(0.5)  # the other process finishes its files
    seen = pathlib.Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        os._exit(1)
"""


class CrashesTest(tf.test.TestCase):
    def run_tests(self, crashing):
        """Returns the last line of tests, of which one ends its process the first time."""
        folder = pathlib.Path(self.get_temp_dir()) / str(crashing)
        folder.mkdir()
        texts = ["def test_it():\n    pass\n"] * NUM_FILES
        texts[crashing] = CRASHES
        done = inner_tests.run(
            folder,
            HOOKS,
            {f"file_{number:02}_test.py": text for number, text in enumerate(texts)},
            *("-q", "-p", "no:cacheprovider"),
            *("--numprocesses=2", "--dist=loadfile", "--max-worker-restart=1"),
        )
        return done.stdout.splitlines()[-1]

    @pytest.mark.slow
    def test_the_other_tests_run_wherever_it_happens(self):
        pytest.importorskip("xdist")
        for crashing in (0, NUM_FILES - 1):
            with self.subTest(crashing=crashing):
                # The test is failed, and run again.
                expected = f"1 failed, {NUM_FILES} passed in "
                self.assertStartsWith(self.run_tests(crashing), expected)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
