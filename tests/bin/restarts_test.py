"""Workers that get SIGTERM are started again and end with the weights of an undisturbed run.

`chaos_test.py` tests workers that are killed.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import slim_data
from tests import runs
from tests.bin import samples
from tests.distribute import processes

TIMEOUT_SECONDS = 280
NUM_WORKERS = 2
STEPS = 40


def children(pid):
    """Returns the process ids of a process's children."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        # Other processes may end in the meantime.
        with contextlib.suppress(OSError):
            _, parent, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(parent) == pid:
                found.append(int(stat.parent.name))
    return found


class RestartsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        cls.whole = None
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)

    def start(self, name, *flags):
        """Starts supervisors of a run that saves every step, unless flags say otherwise."""
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(NUM_WORKERS)]
        started = []
        for task in range(NUM_WORKERS):
            process = subprocess.Popen(
                samples.command(
                    "mnist_distributed_train",
                    *("--dataset_name", "digits", "--data_dir", self.root / "data"),
                    *("--image_size", 12, "--input_queue_memory_factor", 1),
                    *("--train_dir", self.root / name, "--save_interval_secs", 0),
                    *("--max_steps", STEPS, "--batch_size", 6, "--grad_bits", 1),
                    *("--worker_hosts", ",".join(addresses), "--task_id", task),
                    *("--start_timeout", 100, "--max_restarts", 5),
                    *flags,
                ),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(process)
            self.addCleanup(process.communicate)
            self.addCleanup(process.terminate)
        return started

    def end(self, started):
        """Waits for all to exit with status 0; returns their standard error."""
        errors = [process.communicate(timeout=TIMEOUT_SECONDS)[1] for process in started]
        self.assertEqual([process.returncode for process in started], [0] * NUM_WORKERS, errors)
        return errors

    def assert_ends_as_undisturbed(self, name):
        """Compares a finished run with an undisturbed run."""
        if self.whole is None:
            self.end(self.start("whole"))
            type(self).whole = runs.saved(tf.train.latest_checkpoint(self.root / "whole"))
        restarted = runs.saved(tf.train.latest_checkpoint(self.root / name))
        self.assertEqual(self.whole.keys(), restarted.keys())
        for key, value in self.whole.items():
            self.assertAllEqual(value, restarted[key], msg=key)

    def assert_restarted(self, errors, reasons):
        """Checks the reasons of the restarts that a supervisor reported."""
        self.assertEqual(
            [line for line in errors.splitlines() if "; restart " in line],
            [
                f"mnist_distributed_train: {reason}; restart {number} of 5"
                for number, reason in enumerate(reasons, 1)
            ],
        )

    @pytest.mark.long
    def test_sigterm_to_one_worker_makes_all_save_at_one_step_and_restart(self):
        # No other checkpoint is saved before the last step.
        stopped = self.start("stopped", "--save_interval_secs", 1000)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not list(self.root.glob("stopped/events.*")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        time.sleep(0.5)  # the first step starts, and takes longer than this
        (process,) = children(stopped[1].pid)
        os.kill(process, signal.SIGTERM)
        steps = set()
        for errors in self.end(stopped):
            self.assert_restarted(errors, ["stopped by SIGTERM, and saved"])
            steps |= set(re.findall(r"stopped at step (\d+), .* worker 1 \(.*\) was told", errors))
        (step,) = steps
        self.assertLess(int(step), STEPS)
        saved = self.root.glob("stopped/model.ckpt-*.index")
        self.assertEqual({int(path.stem.rpartition("-")[2]) for path in saved}, {int(step), STEPS})
        self.assert_ends_as_undisturbed("stopped")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
