"""Workers that come and go: the others go on, and what a step means stays the same."""

import subprocess
import sys
import time

import pytest
import tensorflow as tf

import slim_data
from tests import runs
from tests.bin import samples
from tests.distribute import processes

NUM_WORKERS = 3
STEPS = 120
TIMEOUT_SECONDS = 280


@pytest.mark.slow
class ElasticTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)
        cls.addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(NUM_WORKERS)]

    def start(self, run, worker, *flags):
        """A supervisor, with a process group of its own, and the file that it writes to."""
        log = self.root / f"{run}_{worker}.log"
        with open(log, "a") as file:
            process = subprocess.Popen(
                samples.command(
                    "mnist_distributed_train",
                    *("--dataset_name", "digits", "--data_dir", self.root / "data"),
                    *("--image_size", 12, "--input_queue_memory_factor", 1),
                    *("--train_dir", self.root / f"{run}_{worker}", "--save_interval_secs", 0),
                    # Two workers cannot divide them evenly.
                    *("--max_steps", STEPS, "--batch_size", 7),
                    *("--worker_hosts", ",".join(self.addresses), "--task_id", worker),
                    *("--start_timeout", 100, "--max_restarts", 5, "--join_timeout", 3),
                    *("--min_workers", 1, "--replicate_checkpoints", 1, *flags),
                ),
                env=samples.ENVIRONMENT,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.addCleanup(processes.kill_group, process)
        return process

    def log(self, run, worker):
        return (self.root / f"{run}_{worker}.log").read_text()

    def step(self, run, worker):
        newest = tf.train.latest_checkpoint(self.root / f"{run}_{worker}")
        return int(newest.rpartition("-")[2]) if newest else 0

    def wait_for(self, is_so):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not is_so():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_the_rest_goes_on_without_the_chief_and_takes_it_in_again(self):
        started = [self.start("lost", worker) for worker in range(NUM_WORKERS)]
        self.wait_for(lambda: self.step("lost", 1) >= 5)
        processes.kill_group(started[0])
        self.wait_for(lambda: "workers 1 and 2 of 3 train" in self.log("lost", 1))
        again = self.step("lost", 1)
        self.wait_for(lambda: self.step("lost", 1) > again)
        started[0] = self.start("lost", 0)
        for process in started:
            self.assertEqual(process.wait(TIMEOUT_SECONDS), 0, self.log("lost", 1))
        for worker in range(NUM_WORKERS):
            self.assertIn("workers 1, 0 and 2 of 3 train", self.log("lost", worker))
        # The restart that takes it in again is none of --max_restarts.
        self.assertEqual(self.log("lost", 1).count("; restart "), 1)
        self.assertEqual(self.log("lost", 1).count("starts again with further workers"), 1)
        # Worker 0 keeps copies by now, which worker 2 did while it was lost.
        self.assertEqual([self.step("lost", worker) for worker in range(2)], [STEPS, STEPS])
        self.assertBetween(self.step("lost", 2), 1, STEPS - 1)
        whole = [self.start("whole", worker) for worker in range(NUM_WORKERS)]
        for process in whole:
            self.assertEqual(process.wait(TIMEOUT_SECONDS), 0, self.log("whole", 0))
        saved, copied, expected = (
            runs.saved(tf.train.latest_checkpoint(self.root / folder))
            for folder in ("lost_1", "lost_0", "whole_0")
        )
        self.assertEqual(saved.keys(), expected.keys())
        for name, value in expected.items():
            self.assertAllEqual(saved[name], copied[name], msg=name)
            if value.dtype.kind == "f":
                # Gradients are float, so only their sums are rounded otherwise.
                self.assertAllClose(saved[name], value, rtol=0.02, atol=2e-3, msg=name)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
