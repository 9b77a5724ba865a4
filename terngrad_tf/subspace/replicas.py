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


def sum_by_device(strategy, value):
    """Dict of device strings to the sum of a value's components there, None where there is none."""
    sums = {}
    for device, components in by_device(strategy, value).items():
        with tf.device(device):
            sums[device] = None if components[0] is None else tf.add_n(components)
    return sums


def sum_locally(strategy, value):
    """Sum of a value's components in this process, None where there is none."""
    sums = list(sum_by_device(strategy, value).values())
    return None if sums[0] is None else tf.add_n(sums)


def update(strategy, function, variables, slots=None):
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


def spread(strategy, values):
    """A value with the entry of its device, of a dict by device strings, for each replica."""
    return private.mirrored([values[device] for device in devices_of(strategy)])


def sum_over_hosts(strategy, tensor):
    """Sum of a tensor over the processes of a cluster.

    Raises:
        ValueError: a strategy of several processes that offers no such sum.
    """
    hosts = _host_group(strategy)
    return tensor if hosts is None else hosts.all_reduce_sum(tensor)


def place_among_hosts(strategy):
    """Tuple of this process's place among the processes of a cluster and their number.

    Raises:
        ValueError: as `sum_over_hosts`.
    """
    hosts = _host_group(strategy)
    return (0, 1) if hosts is None else (hosts.rank, hosts.size)


def exchange_pieces(strategy, pieces):
    """Gives each host its piece of every host.

    Args:
        strategy: `tf.distribute.Strategy`.
        pieces: tensor [hosts, width], row i for host i.

    Returns:
        Tensor [hosts, width], row i from host i.
    """
    hosts = _host_group(strategy)
    return pieces if hosts is None else hosts.all_to_all(pieces)


def gather_pieces(strategy, piece):
    """Tensor [hosts, width] with the piece [width] of every host."""
    hosts = _host_group(strategy)
    return piece[tf.newaxis] if hosts is None else hosts.all_gather(piece)


def _host_group(strategy):
    hosts = getattr(strategy.extended, "host_group", None)
    if hosts is None and strategy.num_replicas_in_sync > len(devices_of(strategy)):
        raise ValueError(
            "training in a subspace over several processes needs TernGradStrategy. "
            f"Received: {type(strategy).__name__}"
        )
    return hosts
