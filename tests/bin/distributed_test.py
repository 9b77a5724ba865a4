"""Training programs on several hosts: real processes on loopback that end, fail or are killed."""

import random
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

TIMEOUT_SECONDS = 240
SURVIVORS_SECONDS = 60
STEPS = 32
# Twenty kills have passed; each starts the cluster twice more.
KILLS = 1


class Cluster:
    """Two workers of one run, each with a training folder and optionally its own data."""

    def __init__(self, root, name, data_dirs, *flags, of_second=()):
        self.train_dirs = [root / f"{name}_{index}" for index in range(2)]
        self.addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
        self.workers = []
        for index in range(2):
            arguments = [
                *("--dataset_name", "digits", "--image_size", 12, "--input_queue_memory_factor", 1),
                *("--worker_hosts", ",".join(self.addresses), "--task_id", index),
                *("--ps_hosts", "127.0.0.1:1", "--job_name", "worker"),
                *("--data_dir", data_dirs[index], "--train_dir", self.train_dirs[index]),
                *("--batch_size", 6, "--max_steps", STEPS, "--start_timeout", 120),
                *("--grad_bits", 1, "--clip_factor", 2.5, "--save_interval_secs", 0),
                *flags,
                *(of_second if index else ()),
            ]
            self.workers.append(
                subprocess.Popen(
                    samples.command("mnist_distributed_train", *arguments),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )

    def has_done(self, step):
        """Returns True if the chief saved this step or a later one."""
        saved = self.train_dirs[0].glob("model.ckpt-*.index")
        return any(int(path.stem.rpartition("-")[2]) >= step for path in saved)

    def outcomes(self, timeout=TIMEOUT_SECONDS):
        """Returns (exit status, standard output, last line of standard error) of each worker."""
        try:
            written = [worker.communicate(timeout=timeout) for worker in self.workers]
        finally:
            for worker in self.workers:
                worker.kill()
        return [
            (worker.returncode, out, (err.splitlines() or [""])[-1])
            for worker, (out, err) in zip(self.workers, written, strict=True)
        ]


class DistributedTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        data = str(cls.root / "data")
        slim_data.convert("digits", data, shard=True, train_shards=3)
        cls.shared = [data, data]
        # Three files: one worker has twice as many examples as the other.
        cls.own = [slim_data.split_dataset(data, 2, index) for index in range(2)]

    def trained(self, cluster):
        """Returns the arrays of the last checkpoint and the output of each worker."""
        outcomes = cluster.outcomes()
        self.assertEqual([status for status, *_ in outcomes], [0, 0], outcomes)
        self.assertFalse(cluster.train_dirs[1].exists())
        arrays = runs.saved(cluster.train_dirs[0] / f"model.ckpt-{STEPS}")
        return arrays, [out for _, out, _ in outcomes]

    def kill(self, name, step, victim, pause, *flags):
        """Kills a worker after a step; the other must name it and exit in time."""
        cluster = Cluster(self.root, name, self.own, *flags)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not cluster.has_done(step) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(pause)
        cluster.workers[victim].send_signal(signal.SIGKILL)
        if cluster.workers[victim].wait() == 0:
            return  # the worker finished before the signal
        outcomes = cluster.outcomes(SURVIVORS_SECONDS)
        self.assertEqual(outcomes[victim][0], -signal.SIGKILL)
        status, _, error = outcomes[1 - victim]
        self.assertEqual(status, 3, outcomes)
        address = re.escape(cluster.addresses[victim])
        self.assertRegex(
            error, rf"^mnist_distributed_train: error: lost worker {victim} \({address}\b"
        )

    @pytest.mark.long
    def test_killed_and_resumed_runs_equal_the_uninterrupted_one_to_the_bit(self):
        whole, printed = self.trained(Cluster(self.root, "whole", self.own))
        for index, out in enumerate(printed):
            for step in (0, 30):
                self.assertRegex(
                    out,
                    rf"(?m)^Worker {index}: \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: step {step}, "
                    r"loss = \d+\.\d\d\(\d+\.\d examples/sec; \d+\.\d{3}  sec/batch\), "
                    r"accuracy = [01]\.\d{4}$",
                )
        self.assertRegex(printed[0], r"links of [\d.]+ [MG]bit/s: .* expected times in ms are ")
        self.assertRegex(printed[0], "2 workers have examples of their own: 479, 958\n")
        generator = random.Random(0)
        for number in range(KILLS):
            name, step = f"killed_{number}", generator.randrange(1, STEPS - 6)
            victim, pause = generator.randrange(2), generator.uniform(0, 0.2)
            with self.subTest(step=step, victim=victim):
                self.kill(name, step, victim, pause)
                resumed, printed = self.trained(Cluster(self.root, name, self.own))
                self.assertRegex(printed[0], r"resuming from .*model.ckpt-(\d+) at step \1\n")
                self.assertEqual(whole.keys(), resumed.keys())
                for key, array in whole.items():
                    self.assertAllEqual(array, resumed[key], msg=key)

    @pytest.mark.long
    def test_local_steps_resume_with_the_state_of_each_worker(self):
        # The run stops while changes of a fragment are in flight.
        flags = ("--sync_every", 10, "--fragments", 2, "--overlap", 5, "--optimizer", "adam")
        whole, printed = self.trained(Cluster(self.root, "local", self.own, *flags))
        self.assertIn("the last 12 steps come after the last exchange of some", printed[0])
        self.kill("local_killed", 10, 0, 0.1, *flags)
        resumed, printed = self.trained(Cluster(self.root, "local_killed", self.own, *flags))
        self.assertRegex(printed[0], r"resuming from .*model.ckpt-(\d+) at step \1\n")
        self.assertEqual(whole.keys(), resumed.keys())
        for key, array in whole.items():
            self.assertAllEqual(array, resumed[key], msg=key)

    @pytest.mark.slow
    def test_a_worker_with_different_flags_ends_all_with_one_line(self):
        cluster = Cluster(self.root, "flags", self.shared, of_second=("--momentum", 0.5))
        for status, _, error in cluster.outcomes():
            self.assertEqual(status, 3)
            self.assertEqual(
                error,
                "mnist_distributed_train: error: the processes' options differ: momentum is 0.9 on "
                "worker 0 but 0.5 on worker 1 [terngrad explain E42]",
            )

    @pytest.mark.slow
    def test_workers_with_different_labels_report_it(self):
        folders = [self.root / "named", self.root / "not_named"]
        for folder in folders:
            samples.write_photos(folder, {"train": 12}, num_classes=3)
        (folders[0] / "labels.txt").write_text("".join(f"{i}:kind {i}\n" for i in range(1, 9)))
        flags = ("--dataset_name", "flowers", "--net", "cifar10_alexnet", "--image_size", 24)
        for status, _, error in Cluster(self.root, "labels", folders, *flags).outcomes():
            self.assertEqual(status, 2, error)
            self.assertIn("a labels.txt that names the same classes on all workers", error)
            self.assertEndsWith(error, "Received: networks of 9, 6 outputs")

    @pytest.mark.slow
    def test_all_workers_report_what_one_lacks(self):
        (self.root / "empty").mkdir()
        cluster = Cluster(self.root, "lacking", [self.shared[0], self.root / "empty"])
        (status, _, error), (own_status, _, own_error) = cluster.outcomes()
        self.assertEqual((status, own_status), (3, 2))
        reason = own_error.removeprefix("mnist_distributed_train: error: ")
        self.assertStartsWith(reason, "No train files of digits")
        self.assertEndsWith(error, f"worker 1 ({cluster.addresses[1]}) ended: {reason}")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
