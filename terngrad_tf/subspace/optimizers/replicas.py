"""Splits and joins values of a process's replicas in cross-replica context."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import private


def devices_of(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Returns the device of each replica of this process; "" without a strategy."""
    return tuple(strategy.extended.worker_devices) if tf.distribute.has_strategy() else ("",)


def local(strategy: tf.distribute.Strategy, value: Any) -> tuple[Any, ...]:
    """Returns a value's component for each replica of this process."""
    found = strategy.experimental_local_results(value)
    # Values common to all replicas, such as None, occur once.
    return found if len(found) > 1 else found * len(devices_of(strategy))


def by_device(strategy: tf.distribute.Strategy, value: Any) -> dict[str, list[Any]]:
    """Returns the lists of a value's components by device."""
    groups = {}
    for device, component in zip(devices_of(strategy), local(strategy, value), strict=True):
        groups.setdefault(device, []).append(component)
    return groups


def sum_by_device(strategy: tf.distribute.Strategy, value: Any) -> dict[str, tf.Tensor | None]:
    """Returns the sums of a value's components, or None, by device."""
    sums = {}
    for device, components in by_device(strategy, value).items():
        with tf.device(device):
            sums[device] = None if components[0] is None else ternary.sum_in_order(components)
    return sums


def sum_locally(strategy: tf.distribute.Strategy, value: Any) -> tf.Tensor | None:
    """Returns the sum of a value's components in this process, or None."""
    sums = list(sum_by_device(strategy, value).values())
    return None if sums[0] is None else ternary.sum_in_order(sums)


def update(
    strategy: tf.distribute.Strategy,
    function: Callable[..., None],
    variables: Sequence[keras.Variable],
    slots: Sequence[keras.Variable] | None = None,
) -> None:
    """Calls a function, which may assign, for every copy of every variable.

    Args:
        function: function of a copy, the variable's position and, if given, the slot's copy.
        slots: variables of the same shapes, or None.
    """
    for position, variable in enumerate(variables):
        strategy.extended.update(
            variable.value,
            lambda copy, *slot, p=position: function(copy, p, *slot),
            args=() if slots is None else (slots[position].value,),
            group=False,
        )


def to_per_replica(strategy: tf.distribute.Strategy, values: Mapping[str, tf.Tensor]) -> Any:
    """Returns a per-replica value, given values by device."""
    return private.mirrored([values[device] for device in devices_of(strategy)])


def all_reduce(strategy: tf.distribute.Strategy, tensor: tf.Tensor) -> tf.Tensor:
    """Returns the sum of a tensor over the processes of a cluster.

    Raises:
        ValueError: the strategy has several processes but offers no sum.
    """
    processes = _process_group(strategy)
    return tensor if processes is None else processes.all_reduce_sum(tensor)


def process_index_and_count(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns this process's index and the number of processes; see `all_reduce`."""
    processes = _process_group(strategy)
    return (0, 1) if processes is None else (processes.rank, processes.size)


def all_to_all(strategy: tf.distribute.Strategy, pieces: tf.Tensor) -> tf.Tensor:
    """Sends row i of `pieces` [processes, width] to process i; returns the rows by sender."""
    processes = _process_group(strategy)
    return pieces if processes is None else processes.all_to_all(pieces)


def all_gather(strategy: tf.distribute.Strategy, piece: tf.Tensor) -> tf.Tensor:
    """Returns the pieces [width] of all processes as [processes, width]."""
    processes = _process_group(strategy)
    return piece[tf.newaxis] if processes is None else processes.all_gather(piece)


def _process_group(strategy):
    processes = getattr(strategy.extended, "process_group", None)
    if processes is None and strategy.num_replicas_in_sync > len(devices_of(strategy)):
        raise ValueError(
            "training in a subspace over several processes needs TernGradStrategy. "
            f"Received: {type(strategy).__name__}"
        )
    return processes
