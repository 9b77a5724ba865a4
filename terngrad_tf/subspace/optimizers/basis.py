"""A subspace's directions on the devices of the weights, and products with them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange import traffic
from terngrad_tf.subspace.optimizers import replicas

FLOAT_BYTES = 4


class ReplicatedBasis:
    """The components [k, n], one copy per device, split by weights.

    Each process projects its own gradient, since projection is linear, and processes exchange k
    numbers. The copies are tensors, not variables, so that checkpoints do not contain them.

    Args:
        variables: n weights in total, created under `strategy`.
        dtype: "float32", "float16" or "bfloat16", of the copies.
    """

    def __init__(
        self,
        components: np.ndarray,
        variables: Sequence[keras.Variable],
        strategy: tf.distribute.Strategy,
        dtype: str,
    ) -> None:
        self._num_components = len(components)
        self._shapes = [tuple(v.shape) for v in variables]
        blocks = np.split(components, np.cumsum(sizes_of(self._shapes))[:-1], axis=1)
        local = strategy.experimental_local_results(variables[0].value)
        self._blocks = {}
        for device in dict.fromkeys(v.device for v in local):
            with tf.init_scope(), tf.device(device):
                self._blocks[device] = [tf.cast(tf.constant(block), dtype) for block in blocks]

    def project_sum(
        self, strategy: tf.distribute.Strategy, gradients: Sequence[Any], loss: tf.Tensor
    ) -> tf.Tensor:
        """Returns float32 [k + 1]: the summed gradients' coordinates, and the sum of the losses.

        Args:
            gradients: per-replica gradients, None for unused weights.
            loss: float32 scalar of this process.
        """
        sums = [replicas.sum_by_device(strategy, g) for g in gradients]
        sent = []
        for device in sums[0]:
            with tf.device(device):
                blocks = on_device(self._blocks, device)
                sent.append(_project(blocks, [s[device] for s in sums]))
        sent = tf.concat([ternary.sum_in_order(sent), [loss]], 0)
        return replicas.all_reduce(strategy, sent)

    def project(self, strategy: tf.distribute.Strategy, gradients: Sequence[Any]) -> tf.Tensor:
        """Returns the coordinates, float32 [k], of a gradient that all processes hold."""
        device = replicas.devices_of(strategy)[0]
        with tf.device(device):
            return _project(on_device(self._blocks, device), gradients)

    def back_project(
        self, strategy: tf.distribute.Strategy, coordinates: tf.Tensor
    ) -> dict[str, list[tf.Tensor]]:
        """Returns `P^T c` of coordinates [k] in the weights' shapes, float32, by device of this
        process.
        """
        found = {}
        for device in dict.fromkeys(replicas.devices_of(strategy)):
            with tf.device(device):
                found[device] = [
                    tf.reshape(tf.matmul(coordinates[tf.newaxis], to_float32(block)), shape)
                    for block, shape in zip(
                        on_device(self._blocks, device), self._shapes, strict=True
                    )
                ]
        return found

    def received_bytes(self, num_processes: int, outside: bool) -> float:
        """Returns the bytes that a process receives per step, without the loss.

        Args:
            outside: whether the step also moves weights outside of the subspace.
        """
        del outside  # all processes already hold its gradient
        return traffic.ring_bytes(FLOAT_BYTES * self._num_components, num_processes)


def sizes_of(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Returns the number of elements of each shape."""
    return [int(np.prod(shape)) for shape in shapes]


def to_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Casts a tensor to float32, the dtype of products."""
    return tf.cast(tensor, tf.float32)


def on_device(values: Mapping[str, Any], device: str) -> Any:
    """Returns a device's entry, or the first entry if the device has none.

    Device strings may be spelled differently.
    """
    found = [v for name, v in values.items() if _device_key(name) == _device_key(device)]
    return found[0] if found else next(iter(values.values()))


def _device_key(device):
    """Returns kind and number of a device of this process, independent of spelling."""
    spec = tf.DeviceSpec.from_string(device or "")
    return spec.device_type or "CPU", spec.device_index or 0


def _project(blocks, gradients):
    """Returns `P g` for blocks [k, size] and gradients in the weights' shapes; None is zero."""
    parts = [
        tf.linalg.matvec(to_float32(block), to_float32(tf.reshape(g, [-1])))
        for block, g in zip(blocks, gradients, strict=True)
        if g is not None
    ]
    return ternary.sum_in_order(parts)
