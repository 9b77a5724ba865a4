"""Which device each replica of this process runs on."""

import tensorflow as tf

from terngrad_tf.arguments import check_integer


def local_devices(num_nodes: int | None = None, num_gpus: int | None = None) -> list[str]:
    """Devices of the replicas of this process: replica i on GPU `i % num_gpus`.

    Where there is no GPU (or `num_gpus=0`), all replicas are on the CPU.

    Args:
        num_nodes: number of replicas. Default: one a GPU, or one on the CPU.
        num_gpus: GPUs to use. Default: all.

    Returns:
        List of `num_nodes` device strings such as "/device:CPU:0".

    Raises:
        ValueError: an argument is out of range.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    if num_gpus is not None:
        check_integer("num_gpus", num_gpus, 0)
        # Without a GPU the number asked for still stands for that many replicas.
        num_nodes = num_gpus if num_nodes is None and num_gpus else num_nodes
        gpus = min(gpus, num_gpus)
    num_nodes = max(gpus, 1) if num_nodes is None else num_nodes
    check_integer("num_nodes", num_nodes)
    if not gpus:
        return ["/device:CPU:0"] * num_nodes
    return [f"/device:GPU:{node % gpus}" for node in range(num_nodes)]
