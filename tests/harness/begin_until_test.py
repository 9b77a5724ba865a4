"""Tests whose turn comes after `--begin-until` are skipped, and so is what they need."""

import pathlib
import sys

import pytest
import tensorflow as tf

from tests.harness import inner_tests

HOOKS = ["pytest_addoption", "pytest_runtest_setup"]
TEST = """
import unittest

class ItTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise AssertionError("set up")

    def test_it(self):
        pass
"""


class BeginUntilTest(tf.test.TestCase):
    def test_a_late_test_is_skipped_and_says_why(self):
        folder = pathlib.Path(self.get_temp_dir())
        for time, told in (("0", "its turn came after --begin-until"), ("9e9", "set up")):
            with self.subTest(time=time):
                options = "-q", "-rs", f"--begin-until={time}"
                done = inner_tests.run(folder, HOOKS, {"it_test.py": TEST}, *options)
                self.assertIn(told, done.stdout)
                self.assertEqual(done.returncode == 0, time == "0", done.stdout)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
