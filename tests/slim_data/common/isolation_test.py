"""Functions that crash or take too many resources end only their own process."""

import os
import sys
import unittest

import pytest

from slim_data import DataError
from slim_data.common import isolation


class IsolationTest(unittest.TestCase):
    def test_results_and_errors_come_back(self):
        self.assertEqual(isolation.call_isolated(divmod, 7, 2), (3, 1))
        with self.assertRaises(ZeroDivisionError):
            isolation.call_isolated(divmod, 7, 0)

    def test_crashes_and_bombs_are_errors(self):
        with self.assertRaisesRegex(DataError, "crashes"):
            isolation.call_isolated(os.abort)
        with self.assertRaises(MemoryError):
            isolation.call_isolated(bytes, 2**33)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
