"""Contexts that a step opens for code called in the same thread."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from terngrad_tf.distribute.steps.local_steps_optimizer import (
    LocalStepsOptimizer,
    local_steps_optimizer,
)


class _State(threading.local):
    """State of a thread's contexts.

    Attributes:
        noise: that of `local_updates`; None if optimizers exchange gradients.
        changes_are_of_one_size: None if gradients are no changes of weights.
        loop: kind of a step of Keras' loop, and the optimizer if it takes local steps.
    """

    noise: list[Any] | None = None
    changes_are_of_one_size: bool | None = None
    loop: tuple[str | None, LocalStepsOptimizer | None] = (None, None)
    is_single_batch: bool = False


_state = _State()


@contextlib.contextmanager
def _within(name: str, value: Any) -> Iterator[None]:
    previous = getattr(_state, name)
    setattr(_state, name, value)
    try:
        yield
    finally:
        setattr(_state, name, previous)


def local_updates(noise: Sequence[Any] = ()) -> contextlib.AbstractContextManager[None]:
    """Context of a replica in which optimizers exchange no gradients.

    Args:
        noise: variance by rounding of each gradient, or None where unknown, if gradients are
            reduced already. By default they are the replica's own.
    """
    return _within("noise", list(noise))


def updates_are_local() -> bool:
    """True if optimizers exchange no gradients."""
    return _state.noise is not None


def noise_of_updates() -> list[Any]:
    """Returns the `noise` of `local_updates`."""
    return _state.noise or []


def changes_as_gradients(are_of_one_size: bool) -> contextlib.AbstractContextManager[None]:
    """Context in which optimizers take changes of weights as gradients.

    Args:
        are_of_one_size: all non-zero elements of a change have one size.
    """
    return _within("changes_are_of_one_size", are_of_one_size)


def gradients_are_changes() -> bool:
    """True if gradients are changes of weights."""
    return _state.changes_are_of_one_size is not None


def gradients_are_of_one_size() -> bool:
    """True if gradients are changes whose non-zero elements have one size."""
    return bool(_state.changes_are_of_one_size)


def keras_loop(
    kind: str | None, optimizer: keras.optimizers.Optimizer | None = None
) -> contextlib.AbstractContextManager[None]:
    """Context of a step of Keras' loop: "train", "test" or "predict"; None outside of steps."""
    return _within("loop", (kind, local_steps_optimizer(optimizer) if kind == "train" else None))


def same_loop() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Returns a function of a context like this one's `keras_loop`, for threads of replicas."""
    return functools.partial(_within, "loop", _state.loop)


def optimizer_of_local_step() -> LocalStepsOptimizer | None:
    """Returns the `LocalStepsOptimizer` whose training step Keras runs; None elsewhere."""
    _, optimizer = _state.loop
    return optimizer


def single_batch() -> contextlib.AbstractContextManager[None]:
    """Context of Keras' methods that take one batch, such as `train_on_batch`."""
    return _within("is_single_batch", True)


def is_single_batch() -> bool:
    """True in one of Keras' methods that take one batch."""
    return _state.is_single_batch


def evaluates() -> bool:
    """True if Keras runs a step that does not train."""
    kind, _ = _state.loop
    return kind in ("test", "predict")
