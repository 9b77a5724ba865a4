"""Logical devices for virtual workers: N workers on fewer devices than N."""

import collections
import shutil
import subprocess

import tensorflow as tf

from terngrad_tf.distribute import private

# Left to the driver, cuDNN and cuBLAS on every physical GPU.
_GPU_RESERVE = 0.1


def local_devices(num_nodes=None, num_gpus=None, memory_limit=None):
    """Devices of the virtual workers of this process, worker i on GPU `i % num_gpus`.

    Where there is no GPU (or `num_gpus=0`), workers are logical CPU devices. TensorFlow fixes its
    devices when it first uses one, so call this (or create the strategy) before anything runs.

    Args:
        num_nodes: number of virtual workers. Default: one a GPU, or one CPU.
        num_gpus: GPUs to use. Default: all.
        memory_limit: MiB of GPU memory a worker, where workers share a GPU. Default: an equal
            part of 90 % of the card's memory, asked from `nvidia-smi`.

    Returns:
        List of `num_nodes` device strings such as "/device:CPU:0".

    Raises:
        ValueError: an argument is out of range.
        RuntimeError: TensorFlow has already started with too few logical devices.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if num_gpus is not None:
        if not isinstance(num_gpus, int) or num_gpus < 0:
            raise ValueError(f"`num_gpus` must not be negative. Received: num_gpus={num_gpus}")
        # Without a GPU the number asked for still stands for that many workers.
        num_nodes = num_gpus if num_nodes is None and num_gpus else num_nodes
        gpus = gpus[:num_gpus]
    num_nodes = max(len(gpus), 1) if num_nodes is None else num_nodes
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int) or num_nodes < 1:
        raise ValueError(f"`num_nodes` must be a positive integer. Received: num_nodes={num_nodes}")
    if not gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        _configure(cpu, [tf.config.LogicalDeviceConfiguration()] * num_nodes, num_nodes)
        return [f"/device:CPU:{index}" for index in range(num_nodes)]
    gpus = gpus[:num_nodes]
    nodes_on = collections.Counter(node % len(gpus) for node in range(num_nodes))
    first = [sum(nodes_on[g] for g in range(gpu)) for gpu in range(len(gpus))]
    if num_nodes > len(gpus):
        for index, gpu in enumerate(gpus):
            limit = memory_limit or _memory_mib(index) * (1 - _GPU_RESERVE) / nodes_on[index]
            configuration = tf.config.LogicalDeviceConfiguration(memory_limit=limit)
            _configure(gpu, [configuration] * nodes_on[index], num_nodes)
    return [
        f"/device:GPU:{first[node % len(gpus)] + node // len(gpus)}" for node in range(num_nodes)
    ]


def _configure(device, configurations, num_nodes):
    present = len(tf.config.get_logical_device_configuration(device) or [None])
    if present >= len(configurations):
        return
    if private.devices_are_initialized():
        raise RuntimeError(
            f"`num_nodes`={num_nodes} needs {len(configurations)} logical devices on {device.name},"
            f" but TensorFlow has already started with {present}. Create the strategy before"
            " anything else uses TensorFlow, the one with the most nodes first."
        )
    tf.config.set_logical_device_configuration(device, configurations)


def _memory_mib(index):
    command = shutil.which("nvidia-smi")
    if command is None:
        raise ValueError(
            "`memory_limit` (MiB a virtual worker) is needed where workers share a GPU and"
            " `nvidia-smi` is not found. Received: memory_limit=None"
        )
    query = [command, "--query-gpu=memory.total", "--format=csv,noheader,nounits", f"--id={index}"]
    return float(subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip())
