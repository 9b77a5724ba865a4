"""When replicas exchange: after fixed times, in which fast processes step more."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.local_sgd.outer_updates import OuterUpdates
from terngrad_tf.distribute.local_sgd.schedule import FitSchedule

# Limits plans: a speed over few steps may be far off.
_GROWTH = 4
_NO_MESSAGES = (
    "`sync_seconds` must go with steps that send no messages, because processes take different"
    " numbers of steps. This step sends one: for data that end (give `fit` a data set with"
    " `repeat()` and `steps_per_epoch`), loss scaling, or synchronized batch norm"
)


def own_steps(step: int, planned: int, of_round: int) -> int:
    """Own steps that a process takes in a step of `fit`, after `step` of `of_round`.

    The `planned` steps are spread evenly, beginning with the first.

    Example:
    >>> [own_steps(step, 2, 4) for step in range(4)], [own_steps(step, 6, 4) for step in range(4)]
    ([1, 0, 1, 0], [2, 1, 2, 1])
    """
    return -(-(step + 1) * planned // of_round) + (-step * planned // of_round)


class Plan:
    """Plans the steps of a process in a given time by its speed so far."""

    def __init__(self, seconds: float) -> None:
        self._target = seconds
        self._steps = self._seconds = 0.0

    def add(self, steps: int, seconds: float) -> None:
        """Notes a measurement; earlier ones count half from now on."""
        self._steps = self._steps / 2 + steps
        self._seconds = self._seconds / 2 + seconds

    def after(self, planned: int) -> int:
        """Steps to take next, at least 1, if `planned` steps were planned last."""
        if not self._steps or self._seconds <= 0:
            return planned
        steps = round(self._steps / self._seconds * self._target)
        return max(1, min(steps, _GROWTH * planned))


@dataclasses.dataclass
class _Round:
    """This process's part of a round, from one exchange to the next.

    Attributes:
        planned: own steps.
        length: steps of `fit`.
        step: steps of `fit` done.
        since: time when the clock started; None before. The first step, which traces, is not timed.
        timed: own steps since.
    """

    planned: int
    length: int
    step: int
    since: float | None = None
    timed: int = 0


class PacedSteps(FitSchedule):
    """A schedule by time, in which each process takes as many steps as it has time for.

    A round, from one exchange to the next, has the same number of steps of `fit` on all processes.
    In each a process takes none, one or several *own* steps, as planned when the round began. At
    its end processes exchange numbers of examples and plans for the next round, whose number of
    steps of `fit` is the mean of the plans. A change counts by its number of examples `n_k`:

        g = sum_k n_k (w - w_k) / sum_k n_k

    A saved run resumes within a round, without clock and speed.

    Args:
        seconds: time from one exchange to the next.
        updates: the outer optimizer's updates, of one group of weights.
        steps: integer variable, steps of `fit` since the last exchange.
        iterations: integer variables, steps of `fit`. An own step raises these, and `steps`, by 1;
            `run_step` then corrects them.
        of_round: integer variable, steps of `fit` in the round.
        counts: integer variable `[3]` with a copy for each replica: own steps planned for the
            round, examples since the last exchange, and all own steps.
    """

    def __init__(
        self,
        seconds: float,
        updates: OuterUpdates,
        *,
        steps: Any,
        iterations: Sequence[keras.Variable],
        of_round: Any,
        counts: Any,
    ) -> None:
        super().__init__(steps, iterations[0], "`sync_seconds`")
        self._plan = Plan(seconds)
        self._updates = updates
        self._counters: list[Any] = [steps, *iterations]
        self._of_round = of_round
        self._counts = counts
        self._exchange = tf.function(self._agree_and_exchange, autograph=False)
        self.restored()

    @property
    def num_own_steps(self) -> int:
        """Own steps of this process in all."""
        return int(private.local_tensors(self._counts)[0].numpy()[2])

    def restored(self) -> None:
        """Makes the next step read the variables and start the clock."""
        self._round: _Round | None = None

    def after_step(self) -> None:
        """Counts an own step and its examples."""
        super().after_step()
        examples = self._updates.strategy.extended.examples_of_run
        examples = tf.cast(1 if examples is None else examples, tf.int64)
        for counts in private.local_tensors(self._counts):
            counts.assign_add(tf.stack([0, examples, 1]))

    def run_step(self, step: Callable[[], Any], size: int) -> Any:
        """Takes one step of `fit`, and exchanges at the end of a round.

        `step` takes `size` own steps (Keras' `steps_per_execution`), which count as one here. The
        logs are means over all processes as of the last exchange.
        """
        is_first = self._round is None
        if is_first:
            self._size = size
            self._round = self._next_round()
        now: Any = self._round
        if not is_first and now.since is None:
            now.since, now.timed = time.monotonic(), 0
        number = own_steps(now.step, now.planned, now.length)
        # `fit` needs logs of the first call.
        number = max(1, number) if is_first else number
        with self._updates.strategy.extended.message_guard.refusing(_NO_MESSAGES):
            for _ in range(number):
                self._latest = self._run(step)
        now.step += 1
        now.timed += number
        if number != 1:
            for counter in self._counters:
                counter.assign_add(size * (1 - number))
        is_due = now.step >= now.length
        if is_due:
            self.synchronize()
        return self._agreed(self._latest, is_due or is_first)

    def synchronize(self) -> None:
        """Exchanges the changes, and begins a round."""
        counts_of_replicas = private.local_tensors(self._counts)
        # Waits for the queued steps of a GPU.
        found = [counts.numpy() for counts in counts_of_replicas]
        if self._round is not None and self._round.since is not None:
            self._plan.add(self._round.timed, time.monotonic() - self._round.since)
        planned = self._plan.after(max(1, int(found[0][0])))
        for counts, (_, examples, total) in zip(counts_of_replicas, found, strict=True):
            counts.assign([planned, examples, total])
        self.steps_of_last_round = int(self._steps.numpy())
        with self._updates.strategy.scope():
            self._exchange()
        if self._round is not None:
            self._round = self._next_round()

    def _next_round(self):
        planned, _, _ = private.local_tensors(self._counts)[0].numpy()
        return _Round(
            planned=max(1, int(planned)),
            length=max(1, int(self._of_round.numpy())),
            step=int(self._steps.numpy()) // self._size,
        )

    def _agree_and_exchange(self):
        strategy = self._updates.strategy
        of_replicas = private.local_tensors(self._counts)
        planned, examples, _ = tf.unstack(of_replicas[0])
        group = strategy.extended.process_group
        share = tf.constant(1.0)
        if group is not None:
            own = [tf.cast(tf.stack([planned, examples]), tf.float32)]
            reduce = functools.partial(group.all_reduce_sum, *own)
            timer = strategy.sync_timer
            sums = reduce() if timer is None else timer.measure(own, reduce)
            mean = sums / group.size
            planned = tf.cast(tf.round(mean[0]), tf.int64)
            share = own[0][1] / mean[1]
        self._update(share)
        self._of_round.assign(planned)
        self._steps.assign(0)
        for counts in of_replicas:
            counts.assign(counts * tf.constant([1, 0, 1], tf.int64))

    def _update(self, share):
        outer: Any = self._updates.outer
        steps = tf.convert_to_tensor(self._steps)
        # The attribute may be a tensor of this function, of an average that warms up.
        with tf.init_scope():
            momentum = outer.get_config()["ema_momentum"]
        # Decay the average as `steps` single updates would.
        outer.ema_momentum = momentum ** tf.cast(steps, tf.float32)
        try:
            self._updates.apply(0, self._updates.changes(0, share))
        finally:
            outer.ema_momentum = momentum
