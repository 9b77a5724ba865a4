"""Workers that are killed and started again by their supervisors end as if nothing had happened."""

import contextlib
import os
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
from tests.distribute import processes

TIMEOUT_SECONDS = 280
NUM_WORKERS = 2
STEPS = 40
# Who is killed, one after the other. (1, 0) has passed; each takes one more start of the cluster.
KILLED = (1,)


def children(pid):
    """Numbers of the processes that a process started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        # Others end while they are looked at.
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
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)

    def start(self, name):
        """Supervisors of a run whose every step is saved."""
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
                ),
                env=samples.ENVIRONMENT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(process)
            self.addCleanup(process.communicate)
            self.addCleanup(process.terminate)
        return started

    def end(self, started):
        """What supervisors and programs wrote to standard error; all must end well."""
        errors = [process.communicate(timeout=TIMEOUT_SECONDS)[1] for process in started]
        self.assertEqual([process.returncode for process in started], [0] * NUM_WORKERS, errors)
        return errors

    def wait_for_step(self, name, step):
        """Waits until a run has saved so many steps."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (latest := tf.train.latest_checkpoint(self.root / name)) or (
            int(latest.rpartition("-")[2]) < step
        ):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    @pytest.mark.slow
    def test_killed_workers_are_started_again_and_end_with_the_weights_of_an_undisturbed_run(self):
        self.end(self.start("whole"))
        killed = self.start("killed")
        generator = random.Random(0)
        for number, task in enumerate(KILLED):
            first = number * STEPS // len(KILLED)
            self.wait_for_step("killed", generator.randint(first + 2, first + STEPS // 4))
            (process,) = children(killed[task].pid)
            os.kill(process, signal.SIGKILL)
        for task, errors in enumerate(self.end(killed)):
            reports = [line for line in errors.splitlines() if "; restart " in line]
            self.assertLen(reports, len(KILLED), errors)
            for number, (report, victim) in enumerate(zip(reports, KILLED, strict=True)):
                why = "another worker ended or is out of reach"
                if victim == task:
                    why = "ended by signal 9 (Killed)"
                self.assertEqual(
                    report, f"mnist_distributed_train: {why}; restart {number + 1} of 5"
                )
        whole, restarted = (
            runs.saved(tf.train.latest_checkpoint(self.root / name)) for name in ("whole", "killed")
        )
        self.assertEqual(whole.keys(), restarted.keys())
        for name, value in whole.items():
            self.assertAllEqual(value, restarted[name], msg=name)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
