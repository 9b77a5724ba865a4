"""Checkpoints of any bytes are restored, or one line gives the reason."""

import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from terngrad_tf.bin.common import program
from terngrad_tf.training import UserError
from terngrad_tf.training.storage import checkpoints
from tests.fuzz import fuzzing
from tests.slim_data import samples


class CheckpointsTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(samples.new_folder(self))
        kernel, bias = tf.Variable(np.arange(60.0).reshape(6, 10)), tf.Variable(np.ones(10))
        self.checkpoint = tf.train.Checkpoint(kernel=kernel, bias=bias, step=tf.Variable(3))
        manager = tf.train.CheckpointManager(
            self.checkpoint, str(self.folder), 2, checkpoint_name=checkpoints.NAME
        )
        checkpoints.write(manager, 7)
        self.path = checkpoints.latest_checkpoint(self.folder)
        self.files = {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def test_damage_is_reported(self):
        names = sorted(name for name in self.files if "ckpt" in name)
        inputs = st.sampled_from(names).flatmap(
            lambda name: st.tuples(st.just(name), fuzzing.mutated([self.files[name]]))
        )

        def check(changed):
            name, content = changed
            (self.folder / name).write_bytes(content)
            try:
                checkpoints.restore(self.checkpoint, self.path)
            except UserError as error:
                self.assert_clear(program.one_line(error), self.path)
            finally:
                (self.folder / name).write_bytes(self.files[name])

        self.fuzz("checkpoints", inputs, check)
        checkpoints.restore(self.checkpoint, self.path)

    def test_damage_of_the_list_is_reported(self):
        def check(content):
            (self.folder / "checkpoint").write_bytes(content)
            try:
                found = checkpoints.latest_checkpoint(self.folder)
            except UserError as error:
                self.assert_clear(program.one_line(error), str(self.folder))
            else:
                self.assertIsInstance(found, (str, type(None)))

        self.fuzz("lists of checkpoints", fuzzing.mutated([self.files["checkpoint"]]), check)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
