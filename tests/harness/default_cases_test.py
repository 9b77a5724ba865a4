"""Cases of a parameterized test after its first ones are slow tests, if it says so."""

import pathlib
import sys

import pytest
import tensorflow as tf

from tests.harness import inner_tests

HOOKS = ["pytest_collection_modifyitems"]
TEST = """
import pytest
from absl.testing import parameterized

class ItTest(parameterized.TestCase):
    @parameterized.parameters(*"abc")
    @pytest.mark.default_cases(2)
    def test_some(self, case):
        pass

    @parameterized.named_parameters(("_" + case, case) for case in "xyz")
    @pytest.mark.default_cases(1)
    def test_named(self, case):
        pass

    def test_alone(self):
        pass

class MoreTest(ItTest):
    pass
"""
DEFAULT, SLOW = ["alone", "named_x", "some0", "some1"], ["named_y", "named_z", "some2"]


class DefaultCasesTest(tf.test.TestCase):
    def test_further_cases_are_slow_in_each_class(self):
        folder = pathlib.Path(self.get_temp_dir())
        for selection, expected in (("not slow", DEFAULT), ("slow", SLOW)):
            with self.subTest(selection=selection):
                files = {"it_test.py": TEST}
                done = inner_tests.run(folder, HOOKS, files, "-v", "-m", selection)
                for name in ("ItTest", "MoreTest"):
                    begin = f"it_test.py::{name}::test_"
                    passed = [
                        line.removeprefix(begin).split()[0]
                        for line in done.stdout.splitlines()
                        if line.startswith(begin) and " PASSED" in line
                    ]
                    self.assertEqual(sorted(passed), expected, done.stdout)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
