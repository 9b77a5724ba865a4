"""Keras callbacks of a run: log lines, TensorBoard, checkpoints, progress."""

import datetime
import math
import sys
import time

import keras
import tensorflow as tf

from terngrad_tf.training import checkpoints
from terngrad_tf.training.errors import DivergedError

_LOG_EVERY = 10
_WORKER_LOG_EVERY = 30
# How much of a smoothed loss is kept at each step.
_SMOOTHING = 0.9


def log(text):
    """Prints a line at once, with the time in front."""
    print(f"{datetime.datetime.now()}: {text}", flush=True)


def log_interval(tasks):
    """Steps from one log line to the next: 10, in a cluster 30.

    Args:
        tasks: `TernGradStrategy.tasks`.
    """
    return _LOG_EVERY if tasks is None else _WORKER_LOG_EVERY


def log_worker(worker, step, loss, examples_per_second, seconds):
    """Prints how far a worker of a cluster is.

    Args:
        worker: its number.
        step: steps done.
        loss: the loss.
        examples_per_second: its own speed.
        seconds: time of a step.
    """
    print(
        f"Worker {worker}: {datetime.datetime.now()}: step {step}, loss = {loss:.2f}"
        f"({examples_per_second:.1f} examples/sec; {seconds:.3f}  sec/batch)",
        flush=True,
    )


class StepCounter(keras.callbacks.Callback):
    """Base of callbacks that count optimizer steps from the start of the run, not of `fit`.

    Args:
        first_step: steps done before `fit`.
    """

    def __init__(self, first_step):
        super().__init__()
        self.step = first_step

    def on_train_batch_end(self, batch, logs=None):
        """Counts, then calls `on_step_end`."""
        self.step += 1
        self.on_step_end({name: float(value) for name, value in (logs or {}).items()})

    def on_step_end(self, logs):
        """Called after each step with the means, since the last reset, of the metrics."""


class StopOnDivergence(StepCounter):
    """Ends training with `DivergedError` after the step whose loss is not finite.

    Args:
        first_step: steps done before `fit`.
        manager: `tf.train.CheckpointManager`, asked for the last good checkpoint; None on processes
            other than the chief.
    """

    def __init__(self, first_step, manager):
        super().__init__(first_step)
        self._manager = manager

    def on_step_end(self, logs):
        """Checks the running mean, which stays non-finite once one loss was."""
        if not math.isfinite(logs["loss"]):
            raise DivergedError("the loss", self.step, _last_good(self._manager))


def _last_good(manager):
    return "that of worker 0" if manager is None else manager.latest_checkpoint


class TrainingLog(StepCounter):
    """Prints the losses and the speed now and then, and writes them for TensorBoard.

    The losses are means over workers and over the steps since the last line; for TensorBoard also
    smoothed: `s = d * s + (1 - d) * loss`, d being 0.9 a step. The first line follows the first
    step and has the number of steps before it: it tells the losses of the weights that there were,
    and how long it took to prepare the step. In a cluster each process prints a line with its
    number and its own speed.

    Args:
        first_step: steps done before `fit`.
        batch_size: images per step over all workers.
        writer: `tf.summary` writer; None on processes other than the chief.
        traffic: callable from the number of steps done before a step to None or an object with
            `received_bytes`, `float32_bytes` and `compression_ratio`.
        learning_rate: callable from the number of steps done to the learning rate; None where
            there is none.
        entropy_loss: callable from the means of the metrics to the loss without regularization.
        every: steps from one line to the next.
        summary_due: rule of `times`, asked at each line: whether to write for TensorBoard too.
        tasks: `TernGradStrategy.tasks`.
    """

    def __init__(
        self,
        first_step,
        batch_size,
        writer,
        traffic,
        learning_rate,
        entropy_loss,
        every,
        summary_due,
        tasks,
    ):
        super().__init__(first_step)
        self._batch_size = batch_size
        self._writer = writer
        self._entropy_loss = entropy_loss
        self._every = every
        self._summary_due = summary_due
        self._tasks = tasks
        self._traffic = traffic
        self._learning_rate = learning_rate
        self._first_step = first_step
        self._since = None
        self._steps = 0
        self._smoothed = {}

    def on_train_begin(self, logs=None):
        """Starts the clock."""
        self._since = time.perf_counter()

    def on_step_end(self, logs):
        """Reports where it is due and starts new means."""
        self._steps += 1
        is_due = self.step % self._every == 0
        if self.step == self._first_step + 1 and not is_due:
            _, speed = self._tell(self._first_step, logs)
            if self._writer is not None and self._first_step == 0:
                # So that the speeds tell how long the whole run took.
                self._write({"examples_per_second": speed})
        elif is_due:
            losses, speed = self._tell(self.step, logs)
            if self._writer is not None:
                smoothed = self._smooth(losses)
                if self._summary_due(self.step):
                    rates = {"examples_per_second": speed, **self._rates()}
                    self._write({**losses, **smoothed, **rates})
            self.model.reset_metrics()

    def _tell(self, step, logs):
        """Prints a line and starts the clock anew; returns the losses and images a second."""
        seconds = (time.perf_counter() - self._since) / self._steps
        total, entropy = logs["loss"], self._entropy_loss(logs)
        losses = {
            "entropy_loss": entropy,
            "reg_loss": max(0.0, total - entropy),
            "total_loss": total,
        }
        speed = self._batch_size / seconds
        if self._tasks is None:
            told = ", ".join(f"{name} = {value:.2f}" for name, value in losses.items())
            log(f"step {step}, {told} ({speed:.1f} examples/sec; {seconds:.3f} sec/batch)")
        else:
            own_speed = speed / len(self._tasks.names)
            log_worker(self._tasks.index, step, total, own_speed, seconds)
        self._since, self._steps = time.perf_counter(), 0
        return losses, speed

    def _smooth(self, losses):
        kept = _SMOOTHING**self._every
        for name, value in losses.items():
            before = self._smoothed.get(name, value)
            self._smoothed[name] = kept * before + (1 - kept) * value
        return {f"{name}_smoothed": value for name, value in self._smoothed.items()}

    def _rates(self):
        """Learning rate and bytes of the step."""
        scalars = {}
        if self._learning_rate is not None:
            scalars["learning_rate"] = float(self._learning_rate(self.step - 1))
        traffic = self._traffic(self.step - 1)
        if traffic is not None:
            scalars["received_bytes"] = traffic.received_bytes
            scalars["compression_ratio"] = traffic.compression_ratio
        return scalars

    def _write(self, scalars):
        with self._writer.as_default():
            for name, value in scalars.items():
                tf.summary.scalar(name, value, step=self.step)

    def on_train_end(self, logs=None):
        """Hands what is written to the file system."""
        if self._writer is not None:
            self._writer.flush()


class SaveCheckpoints(StepCounter):
    """Saves now and then and at the last step, never weights that are not finite.

    Saving stands at the end of a step, because `fit` overwrites the weights with their moving
    averages before it ends.

    Args:
        first_step: steps done before `fit`.
        manager: `tf.train.CheckpointManager`; None on processes other than the chief, which look at
            the weights (they are those of the chief) so that all end at the same step.
        due: rule of `times`.
        last_step: step after which to save in any case, and at which all processes look.
        is_due_on_all: whether it is due at the same steps on all processes. Default True. Otherwise
            weights that are not finite are left unsaved: the next loss ends the run on all.
    """

    def __init__(self, first_step, manager, due, last_step, is_due_on_all=True):
        super().__init__(first_step)
        self._manager = manager
        self._due = due
        self._last_step = last_step
        self._is_due_on_all = is_due_on_all

    def on_step_end(self, logs):
        """Saves where it is due."""
        is_last = self.step == self._last_step
        if not is_last and not self._due(self.step):
            return
        path = self._not_finite()
        if path is not None and (is_last or self._is_due_on_all):
            raise DivergedError(f"the variable {path}", self.step, _last_good(self._manager))
        if path is not None:
            log(f"not saved at step {self.step}: the variable {path} is not finite")
        elif self._manager is not None:
            checkpoints.save(self._manager, self.step)

    def _not_finite(self):
        """Path of the first variable that is not finite; None where all are."""
        for variable in self.model.weights + self.model.optimizer.variables:
            value = tf.convert_to_tensor(variable)
            if value.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(value)):
                return variable.path
        return None


class ProgressBar(StepCounter):
    """One line on the terminal that shows how far the run is; nothing where there is none.

    Args:
        first_step: steps done before `fit`.
        last_step: steps of the whole run.
        stream: text stream. Default: standard error.
    """

    WIDTH = 30

    def __init__(self, first_step, last_step, stream=None):
        super().__init__(first_step)
        self._first_step = first_step
        self._last_step = last_step
        self._stream = sys.stderr if stream is None else stream
        self._shown = self._stream.isatty()
        self._since = None
        self._drawn = 0.0

    def on_train_begin(self, logs=None):
        """Starts the clock."""
        self._since = time.perf_counter()

    def on_step_end(self, logs):
        """Draws at most ten times a second."""
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

    def on_train_end(self, logs=None):
        """Clears the line."""
        if self._shown:
            self._stream.write("\r\033[K")
            self._stream.flush()
