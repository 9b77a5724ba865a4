"""The interface between Keras' training loop and optimizers of local steps."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


class Schedule:
    """When replicas exchange: never, as in a model that was loaded without a strategy.

    Each step raises `iterations` by 1.

    Attributes:
        steps_of_last_round: steps of `fit` before the last exchange, if time decides; 0 before one.
    """

    def __init__(self, iterations: keras.Variable) -> None:
        self._iterations: Any = iterations
        self.steps_of_last_round = 0

    @property
    def num_own_steps(self) -> int:
        """Steps of this process's replicas."""
        return int(self._iterations.numpy())

    def after_step(self) -> None:
        """Adds the exchanges to a step, after its updates; in cross-replica context."""

    def is_renewed(self, group: int) -> tf.Tensor:
        """True if replicas take a group's shared values before the next step."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Exchanges, outside of a step, the changes since the last exchange."""

    def run_step(self, step: Callable[[], Any], size: int) -> Any:
        """Replaces a step of Keras' loop, a function that takes `size` steps; returns logs."""
        return step()

    def agree_on_logs(self, logs: Any, reduce: Callable[[Any], Any]) -> Any:
        """Returns a step's logs for callbacks: a structure of tensors, the same on all processes.

        `reduce` takes such a structure's mean over processes.
        """
        return logs

    def logs_of_epoch(self, logs: Any) -> Any:
        """Returns means over processes of the last step's logs, at an epoch's end.

        `logs` are what `run_step` returned; all processes call it.
        """
        return logs

    def claimed(self) -> None:
        """Called when the optimizer claims its weights; others may have run."""

    def restored(self) -> None:
        """Called before the replicas' state is set to saved values."""


class LocalStepsOptimizer(keras.optimizers.Optimizer):
    """Base of optimizers whose steps are a replica's own until an exchange, by a `schedule`."""

    schedule: Schedule

    @property
    def local_weights(self) -> Any:
        """The replicas' own values of the weights; None before `build`."""
        raise NotImplementedError

    def claim_weights(self) -> None:
        """Registers the replicas' own weights for this optimizer alone."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Exchanges the changes since the last exchange; all processes call it."""
        raise NotImplementedError


def local_steps_optimizer(optimizer: Any) -> LocalStepsOptimizer | None:
    """Returns the `LocalStepsOptimizer` that an optimizer is or scales losses for, or None."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer if isinstance(optimizer, LocalStepsOptimizer) else None
