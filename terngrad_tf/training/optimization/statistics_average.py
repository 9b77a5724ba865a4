"""Moving averages of batch-norm statistics, which averaged weights need."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import local_steps_optimizer
from terngrad_tf.distribute.batch_norms import statistics
from terngrad_tf.training.logs.callbacks import StepCounter
from terngrad_tf.training.optimization import local_steps
from terngrad_tf.training.optimization.optimizers import warm_up_momentum
from terngrad_tf.training.storage import checkpoints

# Part of checkpoints; variable names derive from it and the position.
_PART = "statistics_average"


class StatisticsAverage:
    """Moving averages of a model's batch-norm statistics, by the rule for its weights.

    After update n, counted from 0: `average = m * average + (1 - m) * statistic`, where m is
    `warm_up_momentum(limit, n)`, and 0 at first. Create it in the strategy's scope.

    Attributes:
        statistics: batch norm's means and variances in turn.
        variables: the average of each statistic.
    """

    def __init__(self, model: keras.Model):
        self.statistics = statistics(model)
        self.variables: list[keras.Variable] = [
            keras.Variable(
                variable.numpy(),
                trainable=False,
                aggregation="only_first_replica",
                name=f"{variable.path.replace('/', '_')}_average",
            )
            for variable in self.statistics
        ]
        self._assign = tf.function(self._move, autograph=False)

    def update(self, momentum: float) -> None:
        """Moves the averages to the statistics, equal on all replicas, by `1 - momentum`."""
        self._assign(tf.constant(momentum, tf.float32))

    def _move(self, momentum):
        for average, statistic in zip(self.variables, self.statistics, strict=True):
            m = tf.cast(momentum, average.dtype)
            average.assign(m * average.value + (1 - m) * tf.cast(statistic.value, average.dtype))

    def saved(self) -> dict[str, Any]:
        """Returns arguments of `tf.train.Checkpoint`."""
        return {_PART: [variable.value for variable in self.variables]}

    def callback(self, first_step: int) -> "Update | None":
        """Returns a callback that updates after each step or exchange; None without batch norm."""
        return Update(self, first_step) if self.variables else None


class Update(StepCounter):
    """Follows the optimizer that averages the weights."""

    def __init__(self, average: StatisticsAverage, first_step: int):
        super().__init__(first_step)
        self._average = average
        self._last_step = first_step

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        local = local_steps_optimizer(self.model.optimizer)
        optimizer: Any = self.model.optimizer
        optimizer = local.outer if local else getattr(optimizer, "inner_optimizer", optimizer)
        self._optimizer = optimizer
        self._limit = optimizer.get_config()["ema_momentum"]
        self._by_time = local is not None and local.sync_seconds is not None
        # The average of all weights moves with each group's exchange.
        self._num_groups = local.fragments if local else 1
        self._count = int(optimizer.iterations.numpy())

    def on_step_end(self, logs: dict[str, float]) -> None:
        """Follows the step."""
        self.follow()

    def follow(self) -> None:
        """Updates if the optimizer has updated its averages, also in an exchange before saving."""
        if not local_steps.has_exchanged(self.model.optimizer):
            return
        count = int(self._optimizer.iterations.numpy())
        steps, self._last_step = self.step - self._last_step, self.step
        # Loss scaling skips steps.
        if count == self._count:
            return
        self._count = count
        limit = self._limit**steps if self._by_time else self._limit
        momentum = float(warm_up_momentum(limit, count - 1)) ** self._num_groups
        self._average.update(0.0 if count == 1 else momentum)


def restore_statistics(model: keras.Model, path: str) -> None:
    """Assigns the averages in a checkpoint, if any, to the batch-norm statistics."""
    found = [variable.value for variable in statistics(model)]
    with checkpoints.reading(path):
        names = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    if found and any(name.startswith(f"{_PART}/") for name in names):
        checkpoints.restore(tf.train.Checkpoint(**{_PART: found}), path)
