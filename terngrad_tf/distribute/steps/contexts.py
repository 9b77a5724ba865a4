"""Contexts that a step opens for code called in the same thread."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import keras

from terngrad_tf.distribute.steps.local_steps_optimizer import (
    LocalStepsOptimizer,
    local_steps_optimizer,
)

_state = threading.local()


@contextlib.contextmanager
def _within(name: str, value: Any) -> Iterator[None]:
    previous = getattr(_state, name, None)
    setattr(_state, name, value)
    try:
        yield
    finally:
        setattr(_state, name, previous)


def local_updates() -> contextlib.AbstractContextManager[None]:
    """Context of a replica in which optimizers update its weights by its own gradients."""
    return _within("are_local", True)


def updates_are_local() -> bool:
    """True if optimizers exchange no gradients."""
    return bool(getattr(_state, "are_local", False))


def changes_as_gradients(are_of_one_size: bool) -> contextlib.AbstractContextManager[None]:
    """Context in which optimizers take changes of weights as gradients.

    Args:
        are_of_one_size: all non-zero elements of a change have one size.
    """
    return _within("changes_are_of_one_size", are_of_one_size)


def gradients_are_changes() -> bool:
    """True if gradients are changes of weights."""
    return getattr(_state, "changes_are_of_one_size", None) is not None


def gradients_are_of_one_size() -> bool:
    """True if gradients are changes whose non-zero elements have one size."""
    return bool(getattr(_state, "changes_are_of_one_size", False))


def keras_loop(
    kind: str | None, optimizer: keras.optimizers.Optimizer | None = None
) -> contextlib.AbstractContextManager[None]:
    """Context of a step of Keras' loop: "train", "test" or "predict"; None outside of steps."""
    return _within("loop", (kind, local_steps_optimizer(optimizer) if kind == "train" else None))


def optimizer_of_local_step() -> LocalStepsOptimizer | None:
    """Returns the `LocalStepsOptimizer` whose training step Keras runs; None elsewhere."""
    _, optimizer = getattr(_state, "loop", None) or (None, None)
    return optimizer


def evaluates() -> bool:
    """True if Keras runs a step that does not train."""
    kind, _ = getattr(_state, "loop", None) or (None, None)
    return kind in ("test", "predict")
