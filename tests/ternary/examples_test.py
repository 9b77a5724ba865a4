"""Examples in docstrings run and give the documented results."""

import doctest
import importlib
import pkgutil
import sys

import pytest
import tensorflow as tf

from terngrad_tf import ternary


class ExamplesTest(tf.test.TestCase):
    def test_examples_of_every_module(self):
        names = {name: getattr(ternary, name) for name in ternary.__all__}
        attempted = 0
        for module in pkgutil.walk_packages(ternary.__path__, "terngrad_tf.ternary."):
            module = importlib.import_module(module.name)
            result = doctest.testmod(module, extraglobs={"tf": tf, **names})
            self.assertEqual(result.failed, 0, module.__name__)
            attempted += result.attempted
        self.assertGreaterEqual(attempted, 8)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
