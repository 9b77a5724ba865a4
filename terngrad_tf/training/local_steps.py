"""What a run with steps of each replica's own does otherwise: its state, and what it tells."""

import contextlib
import dataclasses

from terngrad_tf.distribute import local_steps_optimizer
from terngrad_tf.training.errors import UserError
from terngrad_tf.training.log import log


def check(config, strategy):
    """Refuses options that do not go together, and tells of steps that come too late.

    Args:
        config: `TrainConfig`, its steps known.
        strategy: the strategy.

    Raises:
        UserError: the chief alone would know when to save.
    """
    sync_every = config.local_steps.sync_every
    if not sync_every:
        return
    if strategy.num_processes > 1 and config.checkpoints.save_interval_secs is not None:
        raise UserError(
            "`save_interval_secs` must not go with `sync_every` in a cluster, whose processes save"
            " what each has at the same step: use `save_iter` or `save_epochs`. Received:"
            f" save_interval_secs={config.checkpoints.save_interval_secs}, sync_every={sync_every}"
        )
    if (left := config.max_steps % sync_every) and strategy.is_chief:
        log(
            f"`max_steps` is no multiple of `sync_every`: the last {left} steps come after the last"
            " exchange, and count where the run is gone on with"
        )


def keep_statistics(optimizer, model):
    """Lets the optimizer's state hold the batch-norm statistics of each process."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is not None:
        optimizer.replica_state.add(model.non_trainable_variables)


def shared_variables(optimizer):
    """Variables of an optimizer that are the same on all replicas, a list."""
    local = local_steps_optimizer(optimizer)
    if local is None:
        return optimizer.variables
    scaling = optimizer.variables[: len(optimizer.variables) - len(local.variables)]
    return scaling + local.shared_variables


def scatter_state(optimizer):
    """Gives all processes what the chief restored of their own; all call it."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is not None:
        optimizer.replica_state.scatter()


@contextlib.contextmanager
def collected_state(optimizer):
    """Within, the chief can save the state of all processes, which call it together."""
    optimizer = local_steps_optimizer(optimizer)
    if optimizer is None:
        yield
        return
    optimizer.replica_state.gather()
    try:
        yield
    finally:
        optimizer.replica_state.forget()


def mean_traffic(strategy, sync_every):
    """Function of the number of steps done to the `Traffic` of the next, a mean of local steps.

    Args:
        strategy: the strategy.
        sync_every: steps from one exchange to the next; 0: each step is one.
    """
    if not sync_every:
        return strategy.traffic_of

    def of_step(step):
        traffic = strategy.traffic_of(step // sync_every)
        if traffic is None:
            return None
        return dataclasses.replace(traffic, received_bytes=traffic.received_bytes / sync_every)

    return of_step
