"""A crash of one process of the tests fails one test, and all others run."""

import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

TIMEOUT_SECONDS = 120
NUM_FILES = 12
CONFTEST = "from tests.conftest import pytest_xdist_make_scheduler"
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
        (folder / "conftest.py").write_text(CONFTEST)
        for number in range(NUM_FILES):
            text = CRASHES if number == crashing else "def test_it():\n    pass\n"
            (folder / f"file_{number:02}_test.py").write_text(text)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "--rootdir=.", "-p", "no:cacheprovider"),
                *("--numprocesses=2", "--dist=loadfile", "--max-worker-restart=1"),
                *("-o", "python_files=*_test.py", "."),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_SECONDS,
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
