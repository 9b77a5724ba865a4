"""When replicas exchange: after fixed numbers of steps, or between the steps of `fit`.

`StepSchedule` exchanges after fixed numbers of steps, `MeasuredSteps` after a measured number,
`PacedSteps` after fixed times.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute.local_sgd.fragments import Turns
from terngrad_tf.distribute.local_sgd.kept_logs import KeptLogs
from terngrad_tf.distribute.local_sgd.waited_exchange import WaitedExchange
from terngrad_tf.distribute.steps.local_steps_optimizer import Schedule


class FitSchedule(Schedule):
    """A schedule that exchanges between the steps of `fit`, not within a step.

    `steps` is the variable of steps since the last exchange, `option` the option of `DiLoCo`.
    """

    def __init__(self, steps: Any, iterations: keras.Variable, option: str) -> None:
        super().__init__(iterations)
        self._steps = steps
        self._option = option
        self._reduce: Callable[[Any], Any] | None = None
        self._logs: Any = None
        self._runs = False

    def after_step(self) -> None:
        """Raises ValueError for a step that `run_step` does not run."""
        if not self._runs:
            raise ValueError(f"{self._option} must go with `model.fit`, which takes the steps")

    def is_renewed(self, group: int) -> tf.Tensor:
        """True after an exchange: replicas take the shared values."""
        return tf.equal(tf.convert_to_tensor(self._steps), 0)

    def claimed(self) -> None:
        """As `restored`: the next step reads the variables again."""
        self.restored()

    def agree_on_logs(self, logs: Any, reduce: Callable[[Any], Any]) -> Any:
        """Returns logs as they are: `run_step` averages them after the step."""
        self._reduce = reduce
        return logs

    def logs_of_epoch(self, logs: Any) -> Any:
        """Means over processes of the last step's logs, at an epoch's end."""
        return logs if self._reduce is None else self._agreed(self._logs, is_due=True)

    def _run(self, step):
        self._runs = True
        try:
            return step()
        finally:
            self._runs = False

    def _agreed(self, logs, is_due):
        """Means of the logs over processes if due, or else the last means."""
        self._logs = logs
        if self._reduce is None:
            return logs
        if is_due:
            self._means = self._reduce(logs)
        return self._means


class StepSchedule(Schedule):
    """Exchanges groups of weights in turn, one every `sync_every / fragments` steps.

    `steps` is the variable of steps since all groups were exchanged together.
    """

    def __init__(
        self, turns: Turns, exchange: WaitedExchange, steps: Any, iterations: keras.Variable
    ) -> None:
        super().__init__(iterations)
        self._turns = turns
        self._exchange = exchange
        self._steps = steps
        self._kept_logs = KeptLogs()
        # TensorFlow warns if a single function is traced for each group.
        self._function = functools.cache(self._as_function)

    def after_step(self) -> None:
        """Adds the exchanges that are due to a step."""
        steps = tf.convert_to_tensor(self._steps)
        self._exchange.after_step(self._turns, steps)
        if self._turns.are_of_all:
            is_due = tf.equal(steps, self._turns.sync_every)
            self._steps.assign(tf.where(is_due, tf.zeros_like(steps), steps))

    def is_renewed(self, group: int) -> tf.Tensor:
        """True if replicas take a group's shared values before the next step."""
        return self._turns.is_renewed_after(tf.convert_to_tensor(self._steps), group)

    def synchronize(self) -> None:
        """Ends the exchange under way, then exchanges the groups that changed."""
        steps = int(self._steps.numpy())
        with self._exchange.updates.strategy.scope():
            under_way = self._turns.under_way_after(steps)
            if under_way is not None:
                self._function(self._exchange.receive, under_way)()
            for group in self._turns.changed_after(steps):
                self._function(self._exchange.exchange, group)()
        self._steps.assign(0)

    def agree_on_logs(self, logs: Any, reduce: Callable[[Any], Any]) -> Any:
        """Means over processes, as of the last step in which an exchange ended."""
        is_due = self._turns.is_end_after(tf.convert_to_tensor(self._steps))
        return self._kept_logs.agree(logs, reduce, is_due)

    def logs_of_epoch(self, logs: Any) -> Any:
        """Means over processes of the last step's logs, at an epoch's end."""
        return self._kept_logs.agree_now(logs)

    def restored(self) -> None:
        """Drops the exchange under way."""
        self._exchange.forget()

    def _as_function(self, method, group):
        return tf.function(functools.partial(method, group), autograph=False)
