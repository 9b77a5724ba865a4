"""When replicas exchange: after a number of steps that follows from their times."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.communication.notices import tell
from terngrad_tf.distribute.local_sgd.outer_updates import OuterUpdates
from terngrad_tf.distribute.local_sgd.schedule import FitSchedule
from terngrad_tf.distribute.wire_selection.exchange_model import in_milliseconds, nearly_quickest

# Fewer steps cost less accuracy.
PERIODS = (1, 2, 4, 8, 16, 32)
# Beside the first, which traces functions and connects processes.
_MEASURED_EXCHANGES = 2
_MEASURED_PERIOD = 2


def expected_seconds(step: float, exchange: float) -> dict[int, float]:
    """Returns `{period: expected seconds of a step}` for `PERIODS`, the fewest steps first.

    Example:
    >>> nearly_quickest(expected_seconds(0.01, 0.01))
    8
    """
    return {period: step + exchange / period for period in PERIODS}


def agreed_seconds(
    steps: Sequence[float], exchanges: Sequence[float], period: int
) -> tuple[float, float]:
    """Returns seconds of a step and of an exchange, from those of each process.

    All processes take the slowest one's steps. In its exchange, a process also waits for slower
    ones. If links differ, an exchange ends sooner on one process than on another, which then is
    late for the next. So the exchange is what the longest round of `period` steps leaves, but not
    less than the shortest measured exchange nor more than the longest.

    Example:
    >>> agreed_seconds([5.0, 1.0], [2.0, 10.0], period=2)
    (5.0, 2.0)
    """
    step = max(steps)
    longest = max(period * s + e for s, e in zip(steps, exchanges, strict=True))
    return step, min(max(longest - period * step, min(exchanges)), max(exchanges))


class MeasuredSteps(FitSchedule):
    """A schedule of a fixed number of steps that the first steps of `fit` choose.

    These exchange every 2 steps and are measured. Then all processes take the same number from
    `PERIODS`, by `agreed_seconds`.

    `steps` and `iterations` are variables, steps since the last exchange and in all; `period` is 0
    until it is chosen, and saved.
    """

    def __init__(
        self, updates: OuterUpdates, steps: Any, iterations: keras.Variable, period: Any
    ) -> None:
        super().__init__(steps, iterations, 'sync_every="auto"')
        self._updates = updates
        self._period = period
        self._exchange = tf.function(self._exchange_changes, autograph=False)
        self.restored()

    def restored(self) -> None:
        """Makes the next step read the variables again."""
        self._taken: Any = None  # steps since the last exchange; None until they are read
        self._step_seconds: list[float] = []
        self._exchange_seconds: list[float] = []

    def run_step(self, step: Callable[[], Any], size: int) -> Any:
        """Takes a step, and exchanges if that is due."""
        is_first = self._taken is None
        if is_first:
            self._taken, self._chosen = int(self._steps.numpy()), int(self._period.numpy())
        start = time.perf_counter()
        logs = self._run(step)
        self._taken += size
        if not self._chosen:
            # Reading waits for the step.
            self._steps.numpy()
            self._step_seconds.append((time.perf_counter() - start) / size)
        is_due = self._taken >= (self._chosen or _MEASURED_PERIOD)
        if is_due:
            self.synchronize()
        return self._agreed(logs, is_due or is_first)

    def synchronize(self) -> None:
        """Exchanges all changes since the last exchange."""
        start = time.perf_counter()
        with self._updates.strategy.scope():
            self._exchange()
        if self._taken is None:
            return
        period, self._taken = self._taken, 0
        if not self._chosen:
            self._steps.numpy()
            self._exchange_seconds.append(time.perf_counter() - start)
            if len(self._exchange_seconds) > _MEASURED_EXCHANGES and len(self._step_seconds) > 2:
                self._choose(period)

    def _choose(self, period):
        # The first of both traced functions.
        step = statistics.median(self._step_seconds[1:])
        exchange = min(self._exchange_seconds[1:])
        processes = self._updates.strategy.extended.process_group
        if processes is not None:
            own = tf.constant([step, exchange], tf.float32)
            steps, exchanges = np.transpose(processes.all_gather(own)).tolist()
            step, exchange = agreed_seconds(steps, exchanges, period)
        seconds = expected_seconds(step, exchange)
        self._chosen = nearly_quickest(seconds)
        self._period.assign(self._chosen)
        if processes is None or processes.rank == 0:
            expected = ", ".join(f"{n} {in_milliseconds(s)}" for n, s in seconds.items())
            tell(
                f'sync_every="auto" takes {self._chosen}: a step takes {in_milliseconds(step)} ms'
                f" and an exchange {in_milliseconds(exchange)} ms; expected ms of a step by"
                f" sync_every are {expected}; set sync_every={self._chosen} for the same in every"
                " run"
            )

    def _exchange_changes(self):
        self._updates.apply(0, self._updates.changes(0))
        self._steps.assign(0)
