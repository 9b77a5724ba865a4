"""The separate state of replicas with local steps (`DiLoCo`) in checkpoints."""

import contextlib
from collections.abc import Iterator

import keras

from terngrad_tf.distribute import local_steps_optimizer, private


def exchange_to_save(optimizer: keras.optimizers.Optimizer | None) -> None:
    """Exchanges before saving if time triggers exchanges; all processes call this together.

    A resumed run would differ from an uninterrupted one otherwise.
    """
    local = local_steps_optimizer(optimizer)
    if local is not None and local.sync_seconds:
        local.synchronize()


def keep_statistics(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> None:
    """Adds each process's batch-norm statistics to the optimizer's state."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is not None:
        optimizer.replica_state.add(model.non_trainable_variables)


def shared_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Returns an optimizer's variables that are the same on all replicas."""
    local = local_steps_optimizer(optimizer)
    if local is None:
        return [*optimizer.variables, *private.noise_variables(optimizer)]
    scaling = optimizer.variables[: len(optimizer.variables) - len(local.variables)]
    return scaling + local.shared_variables


def scatter_state(optimizer: keras.optimizers.Optimizer) -> None:
    """Distributes the chief's restored state; all processes call this together."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is not None:
        optimizer.replica_state.scatter()


@contextlib.contextmanager
def collected_state(optimizer: keras.optimizers.Optimizer, saves: bool) -> Iterator[None]:
    """Context in which saving processes hold the state of all; all enter it together."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is None:
        yield
        return
    optimizer.replica_state.gather(saves)
    try:
        yield
    finally:
        optimizer.replica_state.forget()
