"""Asynchronous training by the programs, in real processes, some of which are killed."""

import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import slim_data
from terngrad_tf.bin import mnist_distributed_train, mnist_eval, mnist_train
from tests import runs
from tests.bin import samples
from tests.distribute import processes
from tests.distribute.communication import network

TIMEOUT_SECONDS = 280
JOBS = (("worker", 0), ("worker", 1), ("ps", 0))


class AsyncTrainingTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)

    def setUp(self):
        super().setUp()
        self.outputs = {}

    def start(self, job, task, addresses, max_steps, before=(), flags=()):
        """Starts one process, whose output goes to a file; `before` is a command that runs it."""
        self.outputs[job, task] = self.root / f"{job}{task}.{len(list(self.root.iterdir()))}"
        with open(self.outputs[job, task], "w") as file:
            process = subprocess.Popen(
                list(before)
                + samples.command(
                    "mnist_distributed_train",
                    *("--dataset_name", "digits", "--data_dir", self.root / "data"),
                    *("--image_size", 12, "--input_queue_memory_factor", 1),
                    *("--train_dir", self.root / "run", "--save_interval_secs", 2),
                    *("--max_steps", max_steps, "--batch_size", 16, "--async_training"),
                    *("--grad_bits", 1, "--clip_factor", 2.5, "--initial_learning_rate", 0.02),
                    *("--worker_hosts", ",".join(addresses[:2]), "--ps_hosts", addresses[2]),
                    *("--job_name", job, "--task_id", task, "--start_timeout", 200),
                    *flags,
                ),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_all(self, max_steps, flags=()):
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(len(JOBS))]
        return addresses, {job: self.start(*job, addresses, max_steps, flags=flags) for job in JOBS}

    def step_of(self, worker):
        """Returns the step in the last line of a worker."""
        steps = re.findall(rf"Worker {worker}: .*: step (\d+), loss", self.text(JOBS[0]))
        return int(steps[-1]) if steps else -1

    def text(self, job):
        return self.outputs[job].read_text()

    def wait_until(self, done):
        """Waits until `done()` returns a true value, and returns that value."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (found := done()):
            self.assertLess(time.monotonic(), deadline, self.text(JOBS[0])[-3000:])
            time.sleep(0.1)
        return found

    def wait_for(self, pattern, start=0):
        """Waits until the chief prints `pattern`; returns the position after it in the output."""
        pattern = re.compile(pattern)
        return self.wait_until(lambda: pattern.search(self.text(JOBS[0]), start)).end()

    def statuses(self, started):
        return [process.wait(timeout=TIMEOUT_SECONDS) for process in started]

    @pytest.mark.long
    def test_continues_without_a_worker_ends_without_a_server_and_resumes(self):
        addresses, started = self.start_all(max_steps=10**6)
        for worker in (0, 1):
            self.wait_for(rf"Worker {worker}: .*: step \d+, loss = \d+\.\d\d\(")
        started["worker", 1].send_signal(signal.SIGKILL)
        end = self.wait_for(r"lost worker 1 \(.*: connection refused\); going on without it")
        end = self.wait_for(r"Worker 0: ", end)
        started["worker", 1] = self.start("worker", 1, addresses, 10**6)
        end = self.wait_for(r"worker 1 \(.*\) is back", end)
        end = self.wait_for(r"Worker 1: ", end)
        started["worker", 1].send_signal(signal.SIGSTOP)
        end = self.wait_for(r"lost worker 1 \(.*: timed out\); going on without it", end)
        latest = tf.train.latest_checkpoint(self.root / "run")
        self.wait_until(lambda: tf.train.latest_checkpoint(self.root / "run") != latest)
        started["worker", 1].send_signal(signal.SIGCONT)
        end = self.wait_for(r"worker 1 \(.*\) is back", end)
        self.wait_for(r"Worker 1: ", end)
        started["ps", 0].send_signal(signal.SIGKILL)
        workers = [started["worker", 0], started["worker", 1]]
        statuses = self.statuses(workers)
        self.assertEqual(statuses, [3, 3], [self.text(job)[-3000:] for job in JOBS[:2]])
        for job in JOBS[:2]:
            self.assertRegex(self.text(job), r"error: .*lost ps 0 \(.*connection refused\)")

        _, started = self.start_all(max_steps=10**6)
        self.wait_for(r"Worker 1: .*: step \d+, loss")
        # As a scheduler does; the server waits for the chief.
        for job in (("ps", 0), ("worker", 0)):
            started[job].send_signal(signal.SIGTERM)
        self.assertEqual(self.statuses(started.values()), [75, 3, 3], self.text(JOBS[0])[-3000:])
        (stopped,) = re.findall(r"stopped at step (\d+), which is saved", self.text(JOBS[0]))
        latest = tf.train.latest_checkpoint(self.root / "run")
        self.assertEndsWith(latest, f"-{stopped}")
        steps = int(latest.rpartition("-")[2]) + 60
        _, started = self.start_all(steps)
        self.assertEqual(self.statuses(started.values()), [0] * 3, self.text(JOBS[0])[-3000:])
        self.assertRegex(self.text(JOBS[0]), f"resuming from {re.escape(latest)}")
        self.assertIn(f"finished at step {steps}", self.text(JOBS[0]))

        status, out, _ = samples.call(
            mnist_eval.main,
            *("mnist_eval", "--checkpoint_dir", self.root / "run", "--run_once"),
            *("--data_dir", self.root / "data", "--eval_dir", self.root / "eval"),
        )
        self.assertEqual(status, 0)
        self.assertGreater(float(re.search(r"precision @ 1 = (\S+)", out)[1]), 0.5, out)

    @pytest.mark.long
    def test_continues_without_an_unreachable_worker_and_ends_without_an_unreachable_server(self):
        hosts = network.up(self, "tgp", "10.85.0", len(JOBS))
        addresses = hosts.addresses(network.PORT)

        def start(index):
            before = hosts.on_host(index, [])
            return self.start(*JOBS[index], addresses, 10**6, before)

        started = [start(index) for index in range(len(JOBS))]
        for worker in (0, 1):
            self.wait_for(rf"Worker {worker}: .*: step \d+, loss")
        hosts.cut(1)
        time.sleep(5)
        hosts.join(1)
        step = self.step_of(1)
        self.wait_until(lambda: self.step_of(1) > step)
        reports = r"lost worker 1 ", r"worker 1 \(.*\) is back"
        self.wait_until(lambda: len({len(re.findall(r, self.text(JOBS[0]))) for r in reports}) == 1)

        end = len(self.text(JOBS[0]))
        hosts.cut(1)
        self.wait_for(r"lost worker 1 \(.*\); going on without it", end)
        self.assertEqual(self.statuses([started[1]]), [3], self.text(JOBS[1]))
        self.assertRegex(self.text(JOBS[1]), r"error: lost worker 0 \(.*: ")
        # The chief takes more steps than were scheduled ahead, and saves a checkpoint.
        step = self.step_of(0)
        self.wait_until(lambda: self.step_of(0) > step + 100)
        latest = tf.train.latest_checkpoint(self.root / "run")
        self.wait_until(lambda: tf.train.latest_checkpoint(self.root / "run") != latest)
        hosts.join(1)
        started[1] = start(1)
        end = self.wait_for(r"worker 1 \(.*\) is back", end)
        self.wait_for("Worker 1: ", end)

        hosts.cut(2)
        cut = time.monotonic()
        self.assertEqual(self.statuses(started), [3] * len(JOBS), self.text(JOBS[0])[-3000:])
        self.assertLess(time.monotonic() - cut, 90)
        for job in JOBS[:2]:
            self.assertRegex(self.text(job), r"error: .*lost ps 0 \(")

    @pytest.mark.slow
    def test_a_saved_run_resumes_without_the_weights_that_it_began_with(self):
        source, run = self.root / "source", self.root / "tuned"
        status, _, err = samples.call(
            mnist_train.main,
            *("mnist_train", "--dataset_name=digits", f"--data_dir={self.root / 'data'}"),
            *(f"--train_dir={source}", "--image_size=12", "--max_steps=2", "--batch_size=16"),
            "--input_queue_memory_factor=1",
        )
        self.assertEqual(status, 0, err)
        flags = "--fine_tune", "--pretrained_model_checkpoint_path", source, "--train_dir", run
        for max_steps, line in (
            (2, "Pre-trained model restored from .*source"),
            (4, "resuming from .*tuned/model.ckpt-2"),
        ):
            _, started = self.start_all(max_steps, flags)
            self.assertEqual(self.statuses(started.values()), [0] * 3, self.text(JOBS[0])[-3000:])
            self.assertRegex(self.text(JOBS[0]), line)
            shutil.rmtree(source, ignore_errors=True)

    def test_meaningless_options_are_refused(self):
        for flags, message in (
            (["--num_nodes=2"], "`num_nodes` must be 1 in asynchronous training"),
            (["--wire=allreduce"], "`wire` must be one of ('auto', 'sparse') in asynchronous"),
            (["--grad_bits=4", "--wire=sparse"], "`wire` must be 'auto' with grad_bits=4"),
            (["--wire=sparse"], "`wire` must be 'auto' with grad_bits=32; grad_bits=1 takes"),
            (
                ["--grad_bits=4", "--wire=sparse", "--bits_per_element=0.3"],
                "`bits_per_element` must be None with grad_bits=4",
            ),
            (["--mixed_precision"], "`mixed_precision` must be False in asynchronous training"),
            (["--snapshot_per_epoch=1"], "`snapshot_per_epoch` must be None in asynchronous"),
            (["--telemetry_freq=10"], "`telemetry_freq` must not be given in asynchronous"),
            (["--num_replicas_to_aggregate=1"], "`num_replicas_to_aggregate` must be -1"),
            (["--ps_hosts="], "`ps_hosts` must name a process for asynchronous training"),
        ):
            status, _, err = samples.call(
                mnist_distributed_train.main,
                *("mnist_distributed_train", "--async_training", "--dataset_name=digits"),
                *("--worker_hosts=localhost:1", "--ps_hosts=localhost:2"),
                *(f"--data_dir={self.root / 'data'}", f"--train_dir={self.root / 'none'}"),
                *flags,
            )
            self.assertEqual(status, 2, err)
            self.assertIn(message, err)
        self.assertFalse((self.root / "none").exists())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
