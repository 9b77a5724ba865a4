"""Tests of files that several processes save."""

import os
import sys
import tempfile
from unittest import mock

import keras
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.private import saved_files


class SavedFilesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("model.keras", "model.h5", "model.weights.h5")
    def test_a_file_that_is_written_again_keeps_its_permissions(self, name):
        with TernGradStrategy(1, grad_bits=32).scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        folder = self.enter_context(tempfile.TemporaryDirectory())
        path = os.path.join(folder, name)
        save = model.save_weights if name.endswith(".weights.h5") else model.save
        with mock.patch.object(saved_files, "cluster_is_joined", return_value=True):
            save(path)
            os.chmod(path, 0o600)
            inode = os.stat(path).st_ino
            save(path)
        self.assertNotEqual(os.stat(path).st_ino, inode)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(folder), [name])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
