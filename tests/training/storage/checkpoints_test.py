"""Checkpoints that are damaged or do not fit the disk give one line that names the file."""

import gc
import itertools
import os
import pathlib
import resource
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf.training import UserError
from terngrad_tf.training.errors import write_failure
from terngrad_tf.training.storage import checkpoints
from tests import runs


class CheckpointsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = runs.class_folder(type(self)) / self.id().rpartition(".")[2]
        self.variable = tf.Variable(np.arange(300.0))
        self.checkpoint = tf.train.Checkpoint(weights=self.variable)
        self.manager = tf.train.CheckpointManager(
            self.checkpoint, str(self.folder), 2, checkpoint_name=checkpoints.NAME
        )
        checkpoints.write(self.manager, 7)
        self.path = checkpoints.latest_checkpoint(self.folder)

    def test_the_newest_is_found_and_restored(self):
        self.assertEqual(self.path, str(self.folder / "model.ckpt-7"))
        self.variable.assign(np.zeros(300))
        checkpoints.restore(self.checkpoint, self.path)
        self.assertAllEqual(self.variable, np.arange(300.0))
        self.assertIsNone(checkpoints.latest_checkpoint(self.folder / "none"))

    def test_any_damage_is_one_error_that_names_the_file(self):
        for suffix in (".index", ".data-00000-of-00001"):
            file = pathlib.Path(self.path + suffix)
            whole = file.read_bytes()
            for content in (b"", whole[: len(whole) // 2], bytes([*whole[:50], 255, *whole[51:]])):
                file.write_bytes(content)
                with self.assertRaisesRegex(UserError, f"^{self.path} is damaged, or holds other"):
                    checkpoints.restore(self.checkpoint, self.path)
            file.unlink()
            with self.assertRaisesRegex(UserError, f"^{self.path} is damaged.*"):
                checkpoints.restore(self.checkpoint, self.path)
            file.write_bytes(whole)
        checkpoints.restore(self.checkpoint, self.path)

    def test_a_checkpoint_that_the_list_names_but_is_gone_is_called_missing(self):
        for path in self.folder.glob("model.ckpt-7.*"):
            path.unlink()
        manager = checkpoints.make_manager(self.checkpoint, self.folder, 2)
        line = f"^{self.path} is missing: bring its files back, or take another folder$"
        with self.assertRaisesRegex(UserError, line):
            checkpoints.resume(manager)

    def test_tensorflow_warns_of_no_damage_behind_the_error(self):
        file = pathlib.Path(f"{self.path}.data-00000-of-00001")
        other = {"more": tf.Variable(1.0)}
        content = file.read_bytes()
        with self.assertNoLogs("tensorflow"):
            for left, variables in ((b"", {}), (content[:-9], {}), (b"", other)):
                file.write_bytes(left)
                checkpoint = tf.train.Checkpoint(weights=tf.Variable(np.zeros(300)), **variables)
                with self.assertRaises(UserError):
                    checkpoints.restore(checkpoint, self.path)
            del checkpoint
            gc.collect()

    def test_a_checkpoint_of_other_variables_is_refused(self):
        other_shape = tf.train.Checkpoint(weights=tf.Variable([1.0]))
        with self.assertRaisesRegex(UserError, "holds other variables than this run"):
            checkpoints.restore(other_shape, self.path)
        more = tf.train.Checkpoint(weights=self.variable, more=tf.Variable(1.0, name="average"))
        lacks = "holds other variables than this run: it lacks 1 of them, such as 'average'. It was"
        with self.assertRaisesRegex(UserError, f"^{self.path} {lacks} [^\n]+ folder$"):
            checkpoints.restore(more, self.path)

    def test_a_damaged_list_of_checkpoints_is_reported(self):
        state = self.folder / "checkpoint"
        for content in (b"\0\1\2", b"[" * 9999, b"\xff\xfe", b'model_checkpoint_path: "'):
            state.write_bytes(content)
            with self.assertRaisesRegex(UserError, f"^{state} is damaged: "):
                checkpoints.latest_checkpoint(self.folder)
        state.unlink()
        state.mkdir()
        with self.assertRaisesRegex(UserError, f"^{state} is damaged: .* regular file"):
            checkpoints.latest_checkpoint(self.folder)

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def test_a_failed_write_is_named_and_keeps_other_files(self):
        before = self.files()
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        # Also if the folder holds a checkpoint of the step.
        for step in (8, 7):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
            try:
                with self.assertRaises(OSError) as caught:
                    checkpoints.write(self.manager, step)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            line = f"{self.folder}/model.ckpt-{step} cannot be written: "
            self.assertStartsWith(write_failure(caught.exception), line)
            self.assertEqual(self.files(), before)

    def test_errors_name_a_file_that_tensorflow_could_not_write(self):
        def write_records(path):
            with tf.io.TFRecordWriter(path) as file:
                file.write(bytes(2000))

        def write_tensor(path):
            tf.io.write_file(path, bytes(2000))

        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        for write, path in itertools.product(
            (write_records, write_tensor), ("records", f"{self.folder}/a b")
        ):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
            try:
                with self.assertRaises(tf.errors.OpError) as caught:
                    write(path)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            line = f"{path} cannot be written: File too large"
            self.assertEqual(write_failure(caught.exception), line)

    def test_a_step_that_is_saved_again_has_its_last_values(self):
        names = {*self.files()}
        self.variable.assign(np.zeros(300))
        checkpoints.write(self.manager, 7)
        self.assertEqual({*self.files()}, names)
        self.variable.assign(np.ones(300))
        self.assertEqual(checkpoints.resume(self.manager), 7)
        self.assertAllEqual(self.variable, np.zeros(300))

    @pytest.mark.slow
    def test_training_on_a_full_disk_ends_with_its_own_status_and_resumes_later(self):
        data = runs.class_folder(type(self)) / "data"
        slim_data.convert("digits", str(data), shard=True, train_shards=1)
        command = [sys.executable, "-m", "terngrad_tf.bin.mnist_train", "--dataset_name=digits"]
        command += [f"--data_dir={data}", f"--train_dir={self.folder}/run", "--batch_size=8"]
        command += ["--max_steps=2", "--save_iter=1", "--input_queue_memory_factor=1"]
        limit = 2**20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )
        self.assertEqual(result.returncode, 4, result.stderr)
        self.assertRegex(
            result.stderr.splitlines()[-1],
            f"^mnist_train: error: {self.folder}/run/model.ckpt-1 cannot be written: .*$",
        )
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
