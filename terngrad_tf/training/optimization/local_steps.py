"""Differences of runs with local steps: saving and logs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from terngrad_tf.distribute import TernGradStrategy, local_steps_optimizer
from terngrad_tf.distribute.exchange.traffic import Traffic
from terngrad_tf.training.configs.run_config import TrainConfig
from terngrad_tf.training.errors import UserError
from terngrad_tf.training.log import log
from terngrad_tf.training.logs.triggers import Trigger


def tell_left_steps(config: TrainConfig, strategy: TernGradStrategy) -> None:
    """Logs the number of last steps without an exchange; `config` has known steps."""
    sync_every, fragments = config.local_steps.sync_every, config.local_steps.fragments
    overlap = config.local_steps.overlap
    if not sync_every or not strategy.is_chief:
        return
    interval = sync_every // fragments
    since_arrival = (config.max_steps - overlap) % interval
    left = min(config.max_steps, sync_every - interval + overlap + since_arrival)
    why, of_what = "`max_steps` is no multiple of `sync_every`", ""
    if fragments > 1:
        why, of_what = "`fragments` are exchanged in turn", " of some weights"
    elif overlap:
        why = "with `overlap`, steps go on while changes travel"
    if left:
        log(
            f"{why}: the last {left} steps come after the last exchange{of_what}, and take effect"
            " only if the run is resumed"
        )


def check_length(config: TrainConfig) -> None:
    """Refuses a run that is too short for an exchange; `config` has known steps."""
    sync_every, overlap = config.local_steps.sync_every, config.local_steps.overlap
    with_overlap = f" and `overlap`={overlap}" if overlap else ""
    if sync_every and sync_every + overlap > config.max_steps:
        raise UserError(
            f"`sync_every`{with_overlap} must be at most `max_steps`, {config.max_steps}: weights "
            f"would never be exchanged. Received: sync_every={sync_every}"
        )


def due_on_all(due: Trigger, optimizer: keras.optimizers.Optimizer) -> Trigger:
    """Returns a rule by which all processes save when the chief's rule is due.

    Processes ask the chief after an exchange, because they do not wait for it in between. `due` is
    `triggers.never` on the others.
    """
    local = local_steps_optimizer(optimizer)

    def is_due(step):
        return has_exchanged(optimizer) and local.replica_state.any_process(due(step))

    return is_due


def has_exchanged(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns True if the last step ended with an exchange of all weights, or is not local.

    Also true after steps that loss scaling skipped since.
    """
    local: Any = local_steps_optimizer(optimizer)
    if local is None:
        return True
    if local.sync_seconds:
        return not local.steps_since_exchange
    return (local.steps_since_exchange - local.overlap) % local.sync_every == 0


def exchanges(optimizer: keras.optimizers.Optimizer, steps: int) -> int:
    """Returns how many exchanges there are in `steps` steps; at least 1, and 1 if time decides."""
    local: Any = local_steps_optimizer(optimizer)
    if local is None:
        return steps
    return 1 if local.sync_seconds else max(1, steps // local.sync_every)


def own_steps(optimizer: keras.optimizers.Optimizer, step: int) -> int:
    """Returns how many of the `step` steps this process's replicas took."""
    local = local_steps_optimizer(optimizer)
    return local.num_own_steps if local is not None and local.sync_seconds else step


def without_statistics(variables: Sequence[Any], model: keras.Model) -> Sequence[Any]:
    """Returns the variables that are equal on all processes after each step.

    Batch-norm statistics differ between exchanges of local steps.
    """
    if local_steps_optimizer(model.optimizer) is None:
        return variables
    own = {id(variable) for variable in model.non_trainable_variables}
    return [variable for variable in variables if id(variable) not in own]


def mean_traffic(
    strategy: TernGradStrategy, optimizer: keras.optimizers.Optimizer
) -> Callable[[int], Traffic | None]:
    """Returns a function from the number of steps to the next step's mean `Traffic`.

    With `sync_seconds`, the mean over the steps before the last exchange.
    """
    local: Any = local_steps_optimizer(optimizer)
    if local is None:
        return strategy.traffic_of

    def of_step(step):
        interval = local.sync_every or max(1, local.steps_of_last_round)
        traffic = strategy.traffic_of(step // interval, local.groups)
        if traffic is None:
            return None
        received = traffic.received_bytes / interval
        return dataclasses.replace(traffic, received_bytes=received)

    return of_step
