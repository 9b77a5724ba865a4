"""A run that is killed at random moments and started again ends as an uninterrupted run."""

import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import slim_data
from tests import runs
from tests.bin import samples

TIMEOUT_SECONDS = 300
STEPS = 40
KILLS = 2


def command(root, name):
    """Returns the command line of a run with augmented data and stochastic rounding."""
    return samples.command(
        "cifar10_train",
        *("--data_dir", root / "data", "--train_dir", root / name),
        *("--max_steps", STEPS, "--save_iter", 5, "--batch_size", 20, "--num_nodes", 2),
        *("--grad_bits", 1, "--clip_factor", 2.5, "--quantize_logits", "True"),
        *("--learning_rate_decay_type", "polynomial", "--input_queue_memory_factor", 1),
    )


def kill_and_resume(arguments, kills, seed):
    """Kills a program `kills` times at random moments of its training, then lets it end.

    Returns:
        Standard output of the last process.
    """
    generator = random.Random(seed)
    for _ in range(kills):
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                # A run killed right after its first step may have no checkpoint.
                if ": step " in line and ": step 0," not in line:
                    time.sleep(generator.uniform(0, 0.5))
                    break
            process.send_signal(signal.SIGKILL)
    return subprocess.run(
        arguments,
        check=True,
        timeout=TIMEOUT_SECONDS,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


class ResumeTest(tf.test.TestCase):
    @pytest.mark.long
    def test_killed_and_resumed_training_equals_uninterrupted_to_the_bit(self):
        root = pathlib.Path(self.get_temp_dir())
        samples.write_cifar10(root / "raw", 40)
        slim_data.convert(
            "cifar10", str(root / "data"), raw_dir=str(root / "raw"), allow_other_archives=True
        )
        subprocess.run(command(root, "whole"), check=True, timeout=TIMEOUT_SECONDS)
        printed = kill_and_resume(command(root, "killed"), KILLS, seed=0)
        self.assertRegex(printed, r"resuming from .*model.ckpt-(\d+) at step \1\n")
        one, two = (runs.saved(root / name / f"model.ckpt-{STEPS}") for name in ("whole", "killed"))
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertAllEqual(one[name], two[name], msg=name)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
