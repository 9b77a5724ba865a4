"""Values of the replicas of a process, taken apart and put together in cross-replica context."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private


def devices_of(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Device string of each replica of this process; "" without a strategy."""
    return tuple(strategy.extended.worker_devices) if tf.distribute.has_strategy() else ("",)


def local(strategy: tf.distribute.Strategy, value: Any) -> tuple[Any, ...]:
    """Tuple with the component of a value for each replica of this process."""
    found = strategy.experimental_local_results(value)
    # What is the same for all replicas, such as None, comes once.
    return found if len(found) > 1 else found * len(devices_of(strategy))


def by_device(strategy: tf.distribute.Strategy, value: Any) -> dict[str, list[Any]]:
    """Dict of device strings to the list of a value's components there."""
    groups = {}
    for device, component in zip(devices_of(strategy), local(strategy, value), strict=True):
        groups.setdefault(device, []).append(component)
    return groups


def sum_by_device(strategy: tf.distribute.Strategy, value: Any) -> dict[str, tf.Tensor | None]:
    """Dict of device strings to the sum of a value's components there, None where there is none."""
    sums = {}
    for device, components in by_device(strategy, value).items():
        with tf.device(device):
            sums[device] = None if components[0] is None else tf.add_n(components)
    return sums


def sum_locally(strategy: tf.distribute.Strategy, value: Any) -> tf.Tensor | None:
    """Sum of a value's components in this process, None where there is none."""
    sums = list(sum_by_device(strategy, value).values())
    return None if sums[0] is None else tf.add_n(sums)


def update(
    strategy: tf.distribute.Strategy,
    function: Callable[..., None],
    variables: Sequence[keras.Variable],
    slots: Sequence[keras.Variable] | None = None,
) -> None:
    """Calls a function for every copy of every variable, which it may assign to.

    Args:
        strategy: `tf.distribute.Strategy`.
        function: function of a copy, the variable's position and the slot's copy, if there are any.
        variables: list of `keras.Variable`.
        slots: list of `keras.Variable` of the same shapes. Default: none.
    """
    for position, variable in enumerate(variables):
        strategy.extended.update(
            variable.value,
            lambda copy, *slot, p=position: function(copy, p, *slot),
            args=() if slots is None else (slots[position].value,),
            group=False,
        )


def to_per_replica(strategy: tf.distribute.Strategy, values: Mapping[str, tf.Tensor]) -> Any:
    """A value with the entry of its device, of a dict by device strings, for each replica."""
    return private.mirrored([values[device] for device in devices_of(strategy)])


def all_reduce(strategy: tf.distribute.Strategy, tensor: tf.Tensor) -> tf.Tensor:
    """Sum of a tensor over the processes of a cluster.

    Raises:
        ValueError: a strategy of several processes that offers no such sum.
    """
    processes = _process_group(strategy)
    return tensor if processes is None else processes.all_reduce_sum(tensor)


def process_index_and_count(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Tuple of this process's place among the processes of a cluster and their number.

    Raises:
        ValueError: as `all_reduce`.
    """
    processes = _process_group(strategy)
    return (0, 1) if processes is None else (processes.rank, processes.size)


def all_to_all(strategy: tf.distribute.Strategy, pieces: tf.Tensor) -> tf.Tensor:
    """Gives each process its piece of every process.

    Args:
        strategy: `tf.distribute.Strategy`.
        pieces: tensor [processes, width], row i for process i.

    Returns:
        Tensor [processes, width], row i from process i.
    """
    processes = _process_group(strategy)
    return pieces if processes is None else processes.all_to_all(pieces)


def all_gather(strategy: tf.distribute.Strategy, piece: tf.Tensor) -> tf.Tensor:
    """Tensor [processes, width] with the piece [width] of every process."""
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
