"""Keras callbacks of a run: stop on divergence, progress."""

import datetime
import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import keras
import tensorflow as tf

from terngrad_tf.training.errors import DivergedError
from terngrad_tf.training.storage import checkpoints


class StepCounter(keras.callbacks.Callback):
    """Base of callbacks that count optimizer steps from the start of the run, not of `fit`."""

    model: keras.Model

    def __init__(self, first_step: int):
        super().__init__()
        self.step = first_step

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Counts, then calls `on_step_end`."""
        self.step += 1
        self.on_step_end({name: float(value) for name, value in (logs or {}).items()})

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Called after each step with the metrics' means since the last reset."""


class StopOnDivergence(StepCounter):
    """Ends training with `DivergedError` after a step with a loss that is not finite.

    `manager` names the last good checkpoint; None on processes other than the chief.
    """

    def __init__(self, first_step: int, manager: tf.train.CheckpointManager | None):
        super().__init__(first_step)
        self._manager = manager

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Checks the running mean, which stays non-finite after one such loss."""
        if not math.isfinite(logs["loss"]):
            raise DivergedError("the loss", self.step, checkpoints.last_good(self._manager))


class ProgressBar(StepCounter):
    """Shows a run's progress on one line of a terminal; has no effect elsewhere.

    Log lines go to another stream, possibly a file, and are printed over it: rich.progress would
    draw them in the wrong stream or be broken by them.
    """

    WIDTH = 30

    def __init__(self, first_step: int, last_step: int, stream: TextIO | None = None):
        super().__init__(first_step)
        self._first_step = first_step
        self._last_step = last_step
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._since = 0.0
        self._drawn = 0.0

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Starts the clock."""
        self._since = time.perf_counter()

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Draws at most ten times per second."""
        now = time.perf_counter()
        if not self._shown or (now - self._drawn < 0.1 and self.step != self._last_step):
            return
        self._drawn = now
        filled = self.WIDTH * self.step // self._last_step
        left = (now - self._since) / (self.step - self._first_step) * (self._last_step - self.step)
        self._stream.write(
            f"\r\033[K[{'=' * filled}{' ' * (self.WIDTH - filled)}] {self.step}/{self._last_step}"
            f"  loss {logs['loss']:.3f}  {datetime.timedelta(seconds=round(left))} left\r"
        )
        self._stream.flush()

    def on_train_end(self, logs: dict[str, float] | None = None) -> None:
        """Clears the line."""
        if self._shown:
            self._stream.write("\r\033[K")
            self._stream.flush()
