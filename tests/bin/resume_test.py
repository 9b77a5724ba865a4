"""A run that is killed and started again ends as the run that was not."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

import slim_data

TIMEOUT_SECONDS = 300
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def command(module, *arguments):
    return [sys.executable, "-m", f"terngrad_tf.bin.{module}", *map(str, arguments)]


def values(checkpoint):
    reader = tf.train.load_checkpoint(str(checkpoint))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name != "_CHECKPOINTABLE_OBJECT_GRAPH"
    }


class ResumeTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.get_temp_dir())
        slim_data.convert("digits", str(self.root / "data"), shard=True, train_shards=2)

    def train(self, name):
        return command(
            "mnist_train",
            *("--dataset_name", "digits", "--data_dir", self.root / "data"),
            *("--train_dir", self.root / name, "--max_steps", 60, "--save_iter", 20),
            *("--num_nodes", 2, "--grad_bits", 1, "--clip_factor", 2.5),
            *("--learning_rate_decay_type", "polynomial", "--quantize_logits", "True"),
        )

    def test_killed_and_resumed_ternary_training_equals_uninterrupted_to_the_bit(self):
        subprocess.run(self.train("whole"), check=True, timeout=TIMEOUT_SECONDS, env=ENVIRONMENT)

        with subprocess.Popen(
            self.train("killed"), stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as process:
            for line in process.stdout:
                if ": step 30," in line:
                    process.send_signal(signal.SIGKILL)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertFalse((self.root / "killed" / "model.ckpt-60.index").exists())

        resumed = subprocess.run(
            self.train("killed"),
            check=True,
            timeout=TIMEOUT_SECONDS,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self.assertRegex(resumed.stdout, r"resuming from .*model.ckpt-[24]0 at step [24]0\n")
        one = values(self.root / "whole" / "model.ckpt-60")
        two = values(self.root / "killed" / "model.ckpt-60")
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertAllEqual(one[name], two[name], msg=name)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
