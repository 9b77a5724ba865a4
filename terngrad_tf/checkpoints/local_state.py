"""What replicas that take steps of their own have of their own, in what is saved: `DiLoCo`."""

import contextlib
from collections.abc import Iterator

import keras

from terngrad_tf.distribute import local_steps_optimizer


def exchange_to_save(optimizer: keras.optimizers.Optimizer) -> None:
    """Lets what is saved hold all that was learned, where time decides; all processes call it.

    Otherwise a run that is gone on with would not be as if it had not stopped.
    """
    local = local_steps_optimizer(optimizer)
    if local is not None and local.sync_seconds:
        local.synchronize()


def keep_statistics(optimizer: keras.optimizers.Optimizer, model: keras.Model) -> None:
    """Lets the optimizer's state hold the batch-norm statistics of each process."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is not None:
        optimizer.replica_state.add(model.non_trainable_variables)


def shared_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Variables of an optimizer that are the same on all replicas, a list."""
    local = local_steps_optimizer(optimizer)
    if local is None:
        return optimizer.variables
    scaling = optimizer.variables[: len(optimizer.variables) - len(local.variables)]
    return scaling + local.shared_variables


def scatter_state(optimizer: keras.optimizers.Optimizer) -> None:
    """Gives all processes what the chief restored of their own; all call it."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is not None:
        optimizer.replica_state.scatter()


@contextlib.contextmanager
def collected_state(optimizer: keras.optimizers.Optimizer, saves: bool) -> Iterator[None]:
    """Within, those that save can do so for all processes, which call it together.

    Args:
        optimizer: optimizer of the run.
        saves: whether this process does.
    """
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is None:
        yield
        return
    optimizer.replica_state.gather(saves)
    try:
        yield
    finally:
        optimizer.replica_state.forget()
