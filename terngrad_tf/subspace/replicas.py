"""Values of the replicas of a process, taken apart and put together in cross-replica context."""

import tensorflow as tf

from terngrad_tf.distribute import private


def devices_of(strategy):
    """Device string of each replica of this process; "" without a strategy."""
    return tuple(strategy.extended.worker_devices) if tf.distribute.has_strategy() else ("",)


def local(strategy, value):
    """Tuple with the component of a value for each replica of this process."""
    found = strategy.experimental_local_results(value)
    # What is the same for all replicas, such as None, comes once.
    return found if len(found) > 1 else found * len(devices_of(strategy))


def by_device(strategy, value):
    """Dict of device strings to the list of a value's components there."""
    groups = {}
    for device, component in zip(devices_of(strategy), local(strategy, value), strict=True):
        groups.setdefault(device, []).append(component)
    return groups


def spread(strategy, values):
    """A value with the entry of its device, of a dict by device strings, for each replica."""
    return private.mirrored([values[device] for device in devices_of(strategy)])


def sum_over_hosts(strategy, tensor):
    """Sum of a tensor over the processes of a cluster.

    Raises:
        ValueError: a strategy of several processes that offers no such sum.
    """
    hosts = getattr(strategy.extended, "host_group", None)
    if hosts is not None:
        return hosts.all_reduce_sum(tensor)
    if strategy.num_replicas_in_sync > len(devices_of(strategy)):
        raise ValueError(
            "training in a subspace over several processes needs TernGradStrategy. "
            f"Received: {type(strategy).__name__}"
        )
    return tensor
