"""Logs of an asynchronous run: regular lines for each worker, and scalars for TensorBoard."""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from terngrad_tf.common import tags
from terngrad_tf.distribute.exchange.traffic import PushTraffic
from terngrad_tf.training.log import log_worker
from terngrad_tf.training.logs.board import Board
from terngrad_tf.training.logs.screen import Screen
from terngrad_tf.training.logs.triggers import Trigger


class AsyncLog:
    """Prints the log lines of all workers and writes means for TensorBoard.

    Args:
        traffic: a step's; the steps themselves report pushed bytes.
        screen: shows one row per worker instead of lines.
    """

    def __init__(
        self,
        batch_size: int,
        log_every: int,
        summary_due: Trigger,
        board: Board,
        learning_rate: Callable[[int], Any],
        traffic: PushTraffic,
        last_step: int,
        screen: Screen | None = None,
    ):
        self._batch_size = batch_size
        self._log_every = log_every
        self._summary_due = summary_due
        self._board = board
        self._learning_rate = learning_rate
        self._traffic = traffic
        self._pushed_bytes = traffic.pushed_bytes
        self._last_step = last_step
        self._screen = screen
        now = time.perf_counter()
        self._since = collections.defaultdict(lambda: now)
        self._steps = collections.Counter()
        self._forget()

    @property
    def traffic(self) -> PushTraffic:
        """`PushTraffic` of the last step."""
        return dataclasses.replace(self._traffic, pushed_bytes=self._pushed_bytes)

    def add(self, result: Mapping[str, Any]) -> None:
        """Adds the result of a step."""
        worker, step = int(result["worker"]), int(result["step"])
        is_first = worker not in self._steps
        self._steps[worker] += 1
        self._count += 1
        self._pushed_bytes = int(result["pushed_bytes"])
        values = {
            tags.PUSHED_BYTES: self._pushed_bytes,
            tags.CROSS_ENTROPY: float(result["entropy_loss"]),
            tags.REGULARIZATION: float(result["total_loss"] - result["entropy_loss"]),
            tags.TOTAL_LOSS: float(result["total_loss"]),
            tags.PRECISION_AT_1: float(result["precision_at_1"]),
            tags.STALENESS: step - 1 - int(result["pulled"]),
        }
        for tag, value in values.items():
            self._sums[tag] += value
        if self._screen is not None:
            name = f"worker {worker}"
            if is_first:
                self._screen.begin(name, self._batch_size, step - 1, self._last_step)
            self._screen.step(name, step, values[tags.TOTAL_LOSS], values[tags.PRECISION_AT_1])
        elif is_first or step == self._last_step or step % self._log_every == 0:
            now = time.perf_counter()
            seconds = (now - self._since[worker]) / self._steps[worker]
            speed = self._batch_size / seconds
            # As on one host, the first line shows the number of steps done before.
            shown = step - 1 if is_first else step
            loss, accuracy = values[tags.TOTAL_LOSS], values[tags.PRECISION_AT_1]
            log_worker(worker, shown, loss, speed, seconds, accuracy)
            self._since[worker], self._steps[worker] = now, 0
        if self._summary_due(step):
            self.write(step)

    def write(self, step: int) -> None:
        """Writes the means of the steps since the last call, if any."""
        if not self._count:
            return
        scalars = {tag: value / self._count for tag, value in self._sums.items()}
        seconds = time.perf_counter() - self._began
        scalars |= {
            tags.EXAMPLES_PER_SECOND: self._count * self._batch_size / seconds,
            tags.LEARNING_RATE: float(self._learning_rate(step - 1)),
            tags.PULLED_BYTES: self._traffic.pulled_bytes,
            tags.COMPRESSION_RATIO: self._traffic.float32_bytes / scalars[tags.PUSHED_BYTES],
        }
        self._board.scalars(scalars, step)
        self._forget()

    def _forget(self):
        self._sums = collections.defaultdict(float)
        self._count = 0
        self._began = time.perf_counter()
