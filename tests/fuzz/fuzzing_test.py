"""The fuzzing helpers detect failures, loops and bombs."""

import pathlib
import subprocess
import sys
import time

import pytest
from hypothesis import strategies as st

from tests.fuzz import fuzzing

ROOT = pathlib.Path(__file__).resolve().parents[2]


class FuzzingTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self._seconds = 0
        self._report = self.reported = []

    def test_checks_get_many_inputs_and_their_failures_are_raised(self):
        seen = set()
        self.fuzz("a", st.binary(max_size=9), seen.add, num_cases=30)
        self.assertGreater(len(seen), 20)
        with self.assertRaises(ZeroDivisionError):
            self.fuzz("b", st.integers(0, 9), lambda value: 1 // (value % 3))
        (_, (_, first)), (_, (what, number)) = self.reported
        self.assertEqual((first, what), (30, "b"))
        self.assertGreater(number, 0)

    def test_checks_get_other_inputs_until_time_is_up(self):
        seen = []
        self._seconds = 0.2
        self.fuzz("a", st.integers(), seen.append, num_cases=5)
        self.assertGreater(len(seen), 5)
        self.assertEqual(self.reported, [("fuzz", ("a", len(seen)))])

    def test_damage_varies(self):
        seeds = [bytes(range(256)) * 9, b"a" * 5000]
        seen = set()
        self.fuzz("a", fuzzing.mutated(seeds), seen.add, num_cases=200)
        self.assertGreater(len(seen), 150)

    def test_loops_fail(self):
        with self.assertRaisesRegex(AssertionError, "takes more than 0.1 s"):
            with fuzzing.limited(seconds=0.1):
                while True:
                    time.sleep(0.01)

    def test_bombs_fail(self):
        # Uses a new process, whose peak memory is still low.
        program = """
from tests.fuzz import fuzzing

with fuzzing.limited(num_bytes=2**20):
    b"x" * (2**26 + fuzzing.peak_memory())
"""
        ended = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
        )
        self.assertRegex(ended.stderr, r"AssertionError: takes \d{8,} bytes of memory\n$")

    def test_unclear_errors_fail(self):
        self.assert_clear(ValueError("x: wrong"), "x:")
        for line in ("a\nb", "\x1b[2J", "x" * 10**4, "other"):
            with self.assertRaises(AssertionError):
                self.assert_clear(ValueError(line), "x")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
