"""What an asynchronous run tells: a line a worker now and then, and scalars for TensorBoard."""

import collections
import time

import tensorflow as tf

from terngrad_tf.training.log import log_worker


class AsyncLog:
    """Prints the log lines of all workers and writes means for TensorBoard.

    Args:
        batch_size: images a step.
        log_every: steps from one line to the next.
        summary_due: rule of `triggers`: whether to write for TensorBoard.
        writer: `tf.summary` writer.
        learning_rate: function of the number of steps done.
        traffic: function of the number of steps done to the `PushTraffic` of the next.
    """

    def __init__(self, batch_size, log_every, summary_due, writer, learning_rate, traffic):
        self._batch_size = batch_size
        self._log_every = log_every
        self._summary_due = summary_due
        self._writer = writer
        self._learning_rate = learning_rate
        self._traffic = traffic
        now = time.perf_counter()
        self._since = collections.defaultdict(lambda: now)
        self._steps = collections.Counter()
        self._forget()

    def add(self, result):
        """Takes what a step returned."""
        worker, step = int(result["worker"]), int(result["step"])
        is_first = worker not in self._steps
        self._steps[worker] += 1
        self._count += 1
        values = {
            "entropy_loss": float(result["entropy_loss"]),
            "reg_loss": float(result["total_loss"] - result["entropy_loss"]),
            "total_loss": float(result["total_loss"]),
            "staleness": step - 1 - int(result["pulled"]),
        }
        for name, value in values.items():
            self._sums[name] += value
        if is_first or step % self._log_every == 0:
            now = time.perf_counter()
            seconds = (now - self._since[worker]) / self._steps[worker]
            speed = self._batch_size / seconds
            # As on one host, the first line has the number of steps that were done before.
            shown = step - 1 if is_first else step
            log_worker(worker, shown, float(result["total_loss"]), speed, seconds)
            self._since[worker], self._steps[worker] = now, 0
        if self._summary_due(step):
            self.write(step)

    def write(self, step):
        """Writes the means of the steps since the last time, if there were any."""
        if not self._count:
            return
        scalars = {name: value / self._count for name, value in self._sums.items()}
        seconds = time.perf_counter() - self._began
        traffic = self._traffic(step - 1)
        scalars |= {
            "examples_per_second": self._count * self._batch_size / seconds,
            "learning_rate": float(self._learning_rate(step - 1)),
            "pushed_bytes": traffic.pushed_bytes,
            "pulled_bytes": traffic.pulled_bytes,
            "compression_ratio": traffic.compression_ratio,
        }
        with self._writer.as_default():
            for name, value in scalars.items():
                tf.summary.scalar(name, value, step=step)
        self._writer.flush()
        self._forget()

    def _forget(self):
        self._sums = collections.defaultdict(float)
        self._count = 0
        self._began = time.perf_counter()
