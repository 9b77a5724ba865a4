"""Examples in docstrings run and give the documented results."""

import doctest
import importlib
import pkgutil
import sys

import keras
import pytest
import tensorflow as tf

from terngrad_tf import subspace
from tests.subspace.samples import build, data, flat, new_folder, trajectory, write_trajectory


class ExamplesTest(tf.test.TestCase):
    def test_examples_of_every_module(self):
        x, y = data()
        attempted = 0
        for module in pkgutil.walk_packages(subspace.__path__, "terngrad_tf.subspace."):
            with self.subTest(module=module):
                module = importlib.import_module(module.name)
                network, folder = build(), new_folder(self)
                write_trajectory(folder / "pca", network, trajectory(6, flat(network).size))
                names = {
                    "tf": tf,
                    "keras": keras,
                    "SubspaceModel": subspace.SubspaceModel,
                    "network": network,
                    "model": network,
                    "x": x,
                    "y": tf.one_hot(y, 3) if module.__name__.endswith("trainer") else y,
                    "snapshots": folder / "pca",
                    "directory": str(folder / "made"),
                    "subspace": subspace.Subspace.fit(folder / "pca", 4),
                }
                result = doctest.testmod(module, extraglobs=names)
                self.assertEqual(result.failed, 0, module.__name__)
                attempted += result.attempted
        self.assertGreaterEqual(attempted, 12)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
