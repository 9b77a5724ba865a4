"""A run of several workers that incidents disturb, and its rules."""

import contextlib
import os
import signal
import subprocess
import time

from benchmarks.lib import cluster_hosts

PORT = 4711
# Flags of each worker.
FLAGS = {"dataset_name": "digits", "image_size": 12, "batch_size": 6, "grad_bits": 1}
START_TIMEOUT = 120
# TensorFlow reports a lost worker in less than a minute.
BOUND_SECONDS = 60 + START_TIMEOUT
_OWN_LINES = "mnist_distributed_train:", "waiting"


class Broken(Exception):
    """The run did not survive."""


class Run:
    """Workers under their supervisors, and their checkpoints.

    `lost` holds the workers that were killed and not restarted; `bound_seconds` is the longest time
    to the next step.

    Args:
        disks: an empty folder per worker; workers may share one.
        **options: further flags of `mnist_distributed_train`.
    """

    bound_seconds = BOUND_SECONDS

    def __init__(self, network, disks, max_steps, **options):
        self.network, self.disks, self.max_steps = network, disks, max_steps
        self._options = options
        self._newest_steps = dict.fromkeys(disks, 0)
        self._supervisors = {}
        self.lost = set()
        for task in range(network.num_hosts):
            self.start(task)

    def train_dir(self, task):
        """Returns the path of a worker's checkpoints."""
        return self.disks[task] / "run"

    @property
    def chief(self):
        """Returns the worker that saves."""
        return 0

    @property
    def keepers(self):
        """Returns the chief and the other workers that save."""
        return (self.chief,)

    def command(self, task):
        """Returns the command of a worker's supervisor, always the same."""
        flags_of_worker = {
            **FLAGS,
            "train_dir": self.train_dir(task),
            "max_steps": self.max_steps,
            "save_interval_secs": 0,
            "worker_hosts": ",".join(self.network.addresses(PORT)),
            "task_id": task,
            "start_timeout": START_TIMEOUT,
            "max_restarts": 10**6,
            **self._options,
        }
        program = "terngrad_tf.bin.mnist_distributed_train"
        return cluster_hosts.command(program, **flags_of_worker)

    def start(self, task):
        """Starts a worker's supervisor."""
        self.lost.discard(task)
        with open(self.log(task), "a") as log:
            self._supervisors[task] = subprocess.Popen(
                self.network.on_host(task, self.command(task)),
                env=cluster_hosts.environment(),
                # A line per step is for the log; other lines would only fill the disk.
                stdout=log if self._options.get("log_freq") == 1 else subprocess.DEVNULL,
                stderr=log,
            )

    def log(self, task):
        """Returns the path of the standard error of a worker and its supervisor.

        With `log_freq=1` it also holds the standard output, a line per step.
        """
        return self.disks[task] / f"worker_{task}.log"

    def programs(self, task):
        """Returns the process IDs of a worker's supervisor and of its programs."""
        pids = subprocess.run(
            ["ip", "netns", "pids", f"{self.network.prefix}{task}"],
            check=True,
            capture_output=True,
            text=True,
        )
        supervisor = self._supervisors[task].pid
        return supervisor, [int(pid) for pid in pids.stdout.split() if int(pid) != supervisor]

    def signal(self, task, number):
        """Sends a signal to a worker's program, if it runs."""
        for pid in self.programs(task)[1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_host(self, task):
        """Kills all processes of a host."""
        self.lost.add(task)
        self._supervisors[task].kill()
        self.signal(task, signal.SIGKILL)
        self._supervisors[task].wait()

    def end_of(self, task, seconds):
        """Waits for a worker's supervisor; returns its exit status, None if it has not ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._supervisors[task].wait(seconds)

    def is_over(self):
        """Returns True if all supervisors have ended."""
        return all(self.end_of(task, 0) is not None for task in self._supervisors)

    def step(self):
        """Returns the newest saved step, 0 if there is none."""
        import tensorflow as tf

        for disk in self._newest_steps:
            # A read may find none while a new list of checkpoints replaces the old one.
            if newest := tf.train.latest_checkpoint(disk / "run"):
                self._newest_steps[disk] = int(newest.rpartition("-")[2])
        return max(self._newest_steps.values())

    def saved(self, task=None):
        """Reads the newest checkpoint of a worker (default: chief); returns its arrays by name."""
        import tensorflow as tf

        folder = self.train_dir(self.chief if task is None else task)
        # The run removes older checkpoints meanwhile.
        for _ in range(10):
            newest = tf.train.latest_checkpoint(folder)
            try:
                reader = tf.train.load_checkpoint(newest)
                names = reader.get_variable_to_shape_map()
                return {
                    name: reader.get_tensor(name)
                    for name in names
                    if name != "_CHECKPOINTABLE_OBJECT_GRAPH" and "save_counter" not in name
                }
            except (tf.errors.OpError, ValueError) as error:
                if newest == tf.train.latest_checkpoint(folder):
                    raise Broken(f"{newest} is damaged: {error}") from error
        raise Broken(f"{folder}: no checkpoint stays long enough to be read")

    def wait_for(self, step, seconds):
        """Waits until the step is saved, all workers have ended, or the time is over."""
        end = time.monotonic() + seconds
        while self.step() < step and not self.is_over() and time.monotonic() < end:
            time.sleep(0.02)

    def go_on(self, num_steps):
        """Waits until `num_steps` more steps are saved; returns the seconds."""
        begin, step = time.monotonic(), self.step() + num_steps
        self.wait_for(step, self.bound_seconds)
        if self.step() < step and not self.is_over():
            raise Broken(f"step {step} was not saved within {self.bound_seconds} s: {self.ends()}")
        return time.monotonic() - begin

    def check(self):
        """Checks the rules that always hold."""
        for task in self._supervisors:
            if len(programs := self.programs(task)[1]) > 1:
                raise Broken(f"worker {task} runs more than once: {programs}")
        if self.step():
            self.saved()

    def ends(self):
        """Returns the last line of each worker that TensorFlow did not write."""
        said = []
        for task in self._supervisors:
            lines = self.log(task).read_text(errors="replace").splitlines()
            own = [line for line in lines if line.startswith(_OWN_LINES)]
            said.append(own[-1] if own else "nothing said")
        return " | ".join(said)

    def finish(self):
        """Waits for the end; all workers that are not `lost` must succeed."""
        for task in self._supervisors.keys() - self.lost:
            while (status := self.end_of(task, 0)) is None:
                self.go_on(1)
            if status:
                raise Broken(f"worker {task} ended with status {status}: {self.ends()}")

    def kill(self):
        """Ends all."""
        for task in self._supervisors:
            self.kill_host(task)
