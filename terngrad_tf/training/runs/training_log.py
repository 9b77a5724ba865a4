"""Logs of a run while it trains: log lines, and scalars for TensorBoard."""

from __future__ import annotations

import collections
import pathlib
import time
import typing
from collections.abc import Callable
from typing import Any

from terngrad_tf.common import tags
from terngrad_tf.distribute.exchange.traffic import Traffic
from terngrad_tf.training.log import log, log_worker
from terngrad_tf.training.logs import triggers
from terngrad_tf.training.logs.callbacks import StepCounter
from terngrad_tf.training.logs.screen import Screen
from terngrad_tf.training.optimization import local_steps, losses

if typing.TYPE_CHECKING:
    from terngrad_tf.training.runs.run import Run


# Kept of a smoothed loss at each step.
_SMOOTHING = 0.9


class _Span:
    """Steps since a line or an entry, of which the process took `own_steps` itself."""

    def __init__(self, own_steps: int):
        self.own_steps = own_steps
        self.steps = 0
        self._since = time.perf_counter()

    def seconds(self) -> float:
        """Returns the seconds a step."""
        return (time.perf_counter() - self._since) / self.steps


class _Means:
    """Means of figures over steps, from means over some of the steps."""

    def __init__(self):
        self._sums: collections.Counter[str] = collections.Counter()
        self._steps = 0

    def add(self, figures: dict[str, float], steps: int) -> None:
        """Adds the means over further steps."""
        self._sums.update({tag: steps * value for tag, value in figures.items()})
        self._steps += steps

    def take(self) -> dict[str, float]:
        """Returns the means, and begins anew."""
        means = {tag: value / self._steps for tag, value in self._sums.items()}
        self._sums.clear()
        self._steps = 0
        return means


class TrainingLog(StepCounter):
    """Prints losses, accuracy and speed regularly, and writes them for TensorBoard.

    Losses and accuracy are means since the last line or, for TensorBoard, since the last entry.
    Entries also have smoothed losses: `s = d * s + (1 - d) * loss`, with d = 0.9 per step. The
    first line follows the first step and has the number of steps before: it reports the losses of
    the initial weights, and the time to prepare the step. In a cluster, each process prints its own
    speed. A table in a terminal replaces the lines.

    Args:
        learning_rate, traffic: functions of the number of steps done.
        freq: steps between entries for TensorBoard; the last step also has one.
        line_freq: steps between lines, a multiple of `freq`; the last step also has one.
    """

    def __init__(
        self,
        run: Run,
        *,
        learning_rate: Callable[[int], Any] | None,
        traffic: Callable[[int], Traffic | None],
        freq: int,
        line_freq: int,
        screen: Screen | None = None,
    ):
        super().__init__(run.first_step)
        self._batch_size = run.config.data.batch_size
        self._board = run.board
        self._strategy = run.strategy
        self._tasks = run.strategy.tasks
        self._summary_due = triggers.summaries(run.config.checkpoints, freq)
        self._net: Any = run.config.model.net  # known here
        self._learning_rate = learning_rate
        self._traffic = traffic
        self._freq = freq
        self._line_freq = line_freq
        self._screen = screen
        self._name = _row_name(run)
        self._last_step = run.config.max_steps
        self._first_step = run.first_step
        self._reset_step = run.first_step
        self._line_means = _Means()
        self._told_wires: list[str] = []
        self._smoothed = {}

    def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
        """Starts the clock, and logs the reason for the wait before the first step."""
        if self._screen is None:
            log("building the step")
        else:
            self._screen.begin(self._name, self._batch_size, self._first_step, self._last_step)
        own_steps = local_steps.own_steps(self.model.optimizer, self._first_step)
        self._entry, self._line = _Span(own_steps), _Span(own_steps)

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Reports if due and starts new means."""
        self._entry.steps += 1
        self._line.steps += 1
        figures = self._figures(logs)
        if self._screen is not None:
            self._screen.step(
                self._name, self.step, figures[tags.TOTAL_LOSS], figures[tags.PRECISION_AT_1]
            )
        is_first = self.step == self._first_step + 1
        is_last = self.step == self._last_step
        is_due = is_last or self.step % self._freq == 0
        has_line = is_last or self.step % self._line_freq == 0
        if not (is_first or is_due):
            return
        if self._strategy.is_chief:
            self._tell_wires()
        own_steps = local_steps.own_steps(self.model.optimizer, self.step)
        speeds = self._speeds(self._entry, own_steps)
        self._entry = _Span(own_steps)
        if is_due:
            self._line_means.add(figures, self.step - self._reset_step)
        if has_line:
            self._tell(self.step, self._line_means.take(), own_steps)
        elif is_first:
            self._tell(self._first_step, figures, own_steps)
        if self._board is not None and is_due:
            smoothed = self._smooth(figures)
            if is_last or self._summary_due(self.step):
                entry = {**figures, **smoothed, **speeds, **self._rates()}
                self._board.scalars(entry, self.step)
        elif self._board is not None and self._first_step == 0:
            # The speeds then cover the whole run.
            self._board.scalars(speeds, self.step)
        if is_due:
            self.model.reset_metrics()
            self._reset_step = self.step

    def _figures(self, logs):
        """Returns losses and accuracy from the metrics' means."""
        total, entropy = logs["loss"], losses.cross_entropy(self._net, logs)
        return {
            tags.PRECISION_AT_1: losses.precision_at_1(self._net, logs),
            tags.CROSS_ENTROPY: entropy,
            tags.REGULARIZATION: max(0.0, total - entropy),
            tags.TOTAL_LOSS: total,
        }

    def _tell_wires(self):
        """Logs changes of the wires that "auto" chooses, with reasons."""
        reasons = self._strategy.wire_choices
        if reasons == self._told_wires:
            return
        for reason in reasons:
            if reason not in self._told_wires:
                log(reason)
        self._told_wires = reasons
        if self._board is not None:
            self._board.text(tags.WIRE_CHOICES, reasons, self.step)

    def _tell(self, step, means, own_steps):
        """Prints a line, unless the table shows the figures."""
        span, self._line = self._line, _Span(own_steps)
        if self._screen is not None:
            return
        accuracy, entropy, regularization, total = means.values()
        seconds, speeds = span.seconds(), self._speeds(span, own_steps)
        if self._tasks is None:
            log(
                f"step {step}, entropy_loss = {entropy:.2f}, reg_loss = {regularization:.2f}, "
                f"total_loss = {total:.2f} ({speeds[tags.EXAMPLES_PER_SECOND]:.1f} examples/sec; "
                f"{seconds:.3f} sec/batch), accuracy = {accuracy:.4f}"
            )
        else:
            own_speed = speeds[tags.WORKER_EXAMPLES_PER_SECOND]
            log_worker(self._tasks.index, step, total, own_speed, seconds, accuracy)

    def _speeds(self, span, own_steps):
        """Returns images per second of all and, in a cluster, of this worker."""
        speed = self._batch_size / span.seconds()
        speeds = {tags.EXAMPLES_PER_SECOND: speed}
        if self._tasks is not None:
            # This process's share of the steps that processes take at their own speed.
            own_share = (own_steps - span.own_steps) / span.steps
            speeds[tags.WORKER_EXAMPLES_PER_SECOND] = speed * own_share / len(self._tasks.names)
        return speeds

    def _smooth(self, figures):
        kept = _SMOOTHING ** (self.step - self._reset_step)
        for tag in (tags.CROSS_ENTROPY, tags.REGULARIZATION, tags.TOTAL_LOSS):
            before = self._smoothed.get(tag, figures[tag])
            self._smoothed[tag] = kept * before + (1 - kept) * figures[tag]
        return {tags.smoothed(tag): value for tag, value in self._smoothed.items()}

    def _rates(self):
        """Returns learning rate and bytes of the step."""
        scalars = {}
        if self._learning_rate is not None:
            scalars[tags.LEARNING_RATE] = float(self._learning_rate(self.step - 1))
        traffic = self._traffic(self.step - 1)
        if traffic is not None:
            scalars[tags.RECEIVED_BYTES] = traffic.received_bytes
            scalars[tags.COMPRESSION_RATIO] = traffic.compression_ratio
        return scalars


def _row_name(run):
    """Returns a run's name in a table: its folder or, in a cluster, its worker."""
    if run.strategy.tasks is not None:
        return f"worker {run.strategy.tasks.index}"
    return pathlib.Path(run.config.train_dir).resolve().name
