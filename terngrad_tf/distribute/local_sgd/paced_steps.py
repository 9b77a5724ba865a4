"""Steps of a process's own, as many as it can take from one exchange to the next."""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private

# A speed that was measured in few steps may be far off.
_GROWTH = 4


def own_steps(step: int, planned: int, of_round: int) -> int:
    """Steps of its own that a process takes in a step of `fit`.

    They are spread evenly over those of the round, so that all are taken when it ends, and the
    first one in its first step.

    Example:
    >>> [own_steps(step, 2, 4) for step in range(4)], [own_steps(step, 6, 4) for step in range(4)]
    ([1, 0, 1, 0], [2, 1, 2, 1])

    Args:
        step: steps of `fit` that the round had before.
        planned: steps of its own in the whole round.
        of_round: steps of `fit` in it.
    """
    return -(-(step + 1) * planned // of_round) + (-step * planned // of_round)


class Plan:
    """How many steps a process takes in a given time, by how many it took.

    Args:
        seconds: the time.
    """

    def __init__(self, seconds: float) -> None:
        self._target = seconds
        self._steps = self._seconds = 0.0

    def add(self, steps: int, seconds: float) -> None:
        """Notes that so many steps took so long; what was noted before counts half from now on."""
        self._steps = self._steps / 2 + steps
        self._seconds = self._seconds / 2 + seconds

    def after(self, planned: int) -> int:
        """The steps to take next, at least 1, where `planned` ones were to be taken last."""
        if not self._steps or self._seconds <= 0:
            return planned
        steps = round(self._steps / self._seconds * self._target)
        return max(1, min(steps, _GROWTH * planned))


class PacedSteps:
    """Lets each process take the steps of its own that it has the time for.

    A round is what is between two exchanges: so many steps of `fit`, the same number on all
    processes. In each, a process takes none, one or several steps of its own, by what it planned
    when the round began. Where it ends, all tell how many examples they took and how many steps
    they plan next; the mean of these is the number of steps of `fit` in the next round.

    What steps count is in variables, so that a run that was saved within a round goes on in it. The
    clock, and how fast a process was, are not.

    Args:
        strategy: a `TernGradStrategy`.
        seconds: from one exchange to the next.
        counters: variables that each step of its own raises by 1, and which are to count steps of
            `fit`.
        steps: one more, which is 0 after an exchange.
        of_round: integer variable, steps of `fit` in the round.
        counts: integer variable `[3]` with a copy for each replica: steps of its own that the
            process planned for the round, examples it took since the last exchange, and steps of
            its own that it took in all.
        exchange: function that adds an exchange to the function under construction, of the factor
            of this process's changes and the steps of `fit` since the last exchange, scalar
            tensors.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        seconds: float,
        *,
        counters: Sequence[keras.Variable],
        steps: keras.Variable,
        of_round: keras.Variable,
        counts: Any,
        exchange: Callable[[tf.Tensor, tf.Tensor], Any],
    ) -> None:
        self._strategy = strategy
        self._plan = Plan(seconds)
        self._counters = [steps, *counters]
        self._steps = steps
        self._of_round = of_round
        self._counts = counts
        self._add_exchange = exchange
        self._exchange = tf.function(self._agree_and_exchange, autograph=False)
        self._reduce: Callable[[Any], Any] | None = None
        self.forget()

    @property
    def num_own_steps(self) -> int:
        """Steps of its own that this process took in all."""
        return int(private.local_tensors(self._counts)[0].numpy()[2])

    def forget(self) -> None:
        """Lets the next step begin with what stands in the variables, and with a new clock."""
        self._is_begun = False
        self._since: float | None = None

    def run(self, step: Callable[[], Any], size: int) -> Any:
        """Takes one step of `fit`; an exchange follows where the round ends.

        Args:
            step: function without arguments that takes steps of this process's own and returns
                logs, a structure of tensors.
            size: how many it takes (Keras' `steps_per_execution`), which count as one here.

        Returns:
            Logs, in a cluster means over all processes as of the last exchange.
        """
        is_first = not self._is_begun
        if is_first:
            self._size, self._is_begun = size, True
            self._read()
        elif self._since is None:
            self._since, self._taken = time.monotonic(), 0
        number = own_steps(self._step, self._planned, self._round)
        # There are no logs without a step.
        number = max(1, number) if is_first else number
        for _ in range(number):
            self._latest = step()
        self._step += 1
        self._taken += number
        self._values = [value + size for value in self._values]
        if number != 1:
            for counter, value in zip(self._counters, self._values, strict=True):
                counter.assign(value)
        is_due = self._step >= self._round
        if is_due:
            self.exchange()
        if self._reduce is None:
            return self._latest
        if is_due or is_first:
            self._logs = self._reduce(self._latest)
        return self._logs

    def exchange(self) -> None:
        """Exchanges what was changed since the last exchange, and begins a round."""
        counts_of_replicas = private.local_tensors(self._counts)
        # Reading waits for a GPU, whose steps are only queued so far.
        found = [counts.numpy() for counts in counts_of_replicas]
        if self._since is not None:
            self._plan.add(self._taken, time.monotonic() - self._since)
        planned = self._plan.after(max(1, int(found[0][0])))
        for counts, (_, examples, total) in zip(counts_of_replicas, found, strict=True):
            counts.assign([planned, examples, total])
        with self._strategy.scope():
            self._exchange()
        self._since = None
        if self._is_begun:
            self._read()

    def count(self, examples: Any) -> None:
        """Adds to the step under construction that this process takes it.

        Args:
            examples: those of its replicas, an integer or an integer scalar tensor.
        """
        for counts in private.local_tensors(self._counts):
            counts.assign_add(tf.stack([0, tf.cast(examples, tf.int64), 1]))

    def agree_on_logs(self, logs: Any, reduce: Callable[[Any], Any]) -> Any:
        """As `DiLoCo.agree_on_logs`, but returned as they are: they are agreed on after steps."""
        self._reduce = reduce
        return logs

    def _read(self):
        planned, _, _ = private.local_tensors(self._counts)[0].numpy()
        self._planned = max(1, int(planned))
        self._round = max(1, int(self._of_round.numpy()))
        self._step = int(self._steps.numpy()) // self._size
        self._values = [int(counter.numpy()) for counter in self._counters]
        self._taken = 0

    def _agree_and_exchange(self):
        of_replicas = private.local_tensors(self._counts)
        planned, examples, _ = tf.unstack(of_replicas[0])
        group = self._strategy.extended.process_group
        share = tf.constant(1.0)
        if group is not None:
            told = [tf.cast(tf.stack([planned, examples]), tf.float32)]
            reduce = functools.partial(group.all_reduce_sum, *told)
            timer = self._strategy.sync_timer
            sums = reduce() if timer is None else timer.measure(told, reduce, steps=0)
            mean = sums / group.size
            planned = tf.cast(tf.round(mean[0]), tf.int64)
            share = told[0][1] / mean[1]
        self._add_exchange(share, tf.convert_to_tensor(self._steps))
        self._of_round.assign(planned)
        self._steps.assign(0)
        for counts in of_replicas:
            counts.assign(counts * tf.constant([1, 0, 1], tf.int64))
