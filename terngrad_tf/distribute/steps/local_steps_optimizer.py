"""The interface between Keras' training loop and optimizers of local steps."""

from collections.abc import Callable
from typing import Any

import keras


class LocalStepsOptimizer(keras.optimizers.Optimizer):
    """Base of optimizers whose steps are a replica's own until an exchange."""

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

    def run_step(self, step: Callable[[], Any], size: int) -> Any:
        """Replaces a step of Keras' loop, a function that takes `size` steps; returns logs."""
        return step()

    def agree_on_logs(self, logs: Any, reduce: Callable[[Any], Any]) -> Any:
        """Returns a step's logs for callbacks: a structure of tensors, the same on all processes.

        `reduce` takes such a structure's mean over processes.
        """
        raise NotImplementedError

    def logs_of_epoch(self, logs: Any) -> Any:
        """Returns the last step's logs at an epoch's end, the same on all processes.

        `logs` are what `run_step` returned; all processes call it.
        """
        raise NotImplementedError


def local_steps_optimizer(optimizer: Any) -> LocalStepsOptimizer | None:
    """Returns the `LocalStepsOptimizer` that an optimizer is or scales losses for, or None."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer if isinstance(optimizer, LocalStepsOptimizer) else None
