"""The docstrings' examples run and give the stated results."""

import doctest
import importlib
import pkgutil
import sys

import keras
import pytest
import tensorflow as tf

import terngrad_tf
from terngrad_tf import distribute

GLOBALS = {"tf": tf, "keras": keras, "terngrad_tf": terngrad_tf}


class ExamplesTest(tf.test.TestCase):
    def test_examples_of_every_module(self):
        attempted = 0
        for module in pkgutil.walk_packages(distribute.__path__, "terngrad_tf.distribute."):
            module = importlib.import_module(module.name)
            result = doctest.testmod(module, extraglobs=GLOBALS)
            self.assertEqual(result.failed, 0, module.__name__)
            attempted += result.attempted
        self.assertGreaterEqual(attempted, 3)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
