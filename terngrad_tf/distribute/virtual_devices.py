"""Assigns the replicas of this process to devices."""

import tensorflow as tf

from terngrad_tf.common.arguments import check, check_integer
from terngrad_tf.distribute import private


def local_devices(num_nodes: int | None = None, num_gpus: int | None = None) -> list[str]:
    """Returns the devices of this process's replicas, spread evenly over the GPUs.

    The first GPU takes the first replicas, so that the rows of a batch keep their order. Without
    GPUs all replicas are on the CPU.

    Args:
        num_nodes: number of replicas. Default: one per GPU, or one on the CPU.
        num_gpus: GPUs to use, at most the available ones. Default: all.

    Returns:
        List of `num_nodes` device strings such as "/device:CPU:0".

    Raises:
        ValueError: an argument is out of range.
    """
    gpus = _num_gpus()
    if num_gpus is not None:
        check_integer("num_gpus", num_gpus, 0)
        advice = "num_nodes, not num_gpus, is the number of replicas"
        rule = f"must be at most {gpus}, the GPUs that TensorFlow sees here ({advice})"
        check(num_gpus <= gpus, "num_gpus", rule, num_gpus)
        gpus = num_gpus
    num_nodes = max(gpus, 1) if num_nodes is None else num_nodes
    check_integer("num_nodes", num_nodes)
    if not gpus:
        return ["/device:CPU:0"] * num_nodes
    numbers = private.devices_of_replicas(num_nodes, min(gpus, num_nodes))
    return [f"/device:GPU:{number}" for number in numbers]


def _num_gpus():
    """Returns the number of GPUs, without making TensorFlow fix its devices."""
    parts = map(tf.config.get_logical_device_configuration, tf.config.get_visible_devices("GPU"))
    return sum(len(part) if part else 1 for part in parts)
