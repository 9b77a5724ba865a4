"""The directions of a subspace on the devices that hold the weights, and products with them."""

import numpy as np
import tensorflow as tf


class DeviceBasis:
    """One copy of the components a device, cut by weights.

    The copies are tensors and no variables, so that no checkpoint holds them.

    Args:
        components: array [k, n].
        variables: list of `keras.Variable`, n weights in all, under `strategy`.
        strategy: `tf.distribute.Strategy` whose devices hold the variables.
        dtype: "float32", "float16" or "bfloat16", in which a copy is kept.
    """

    def __init__(self, components, variables, strategy, dtype):
        sizes = [int(np.prod(v.shape)) for v in variables]
        blocks = np.split(components, np.cumsum(sizes)[:-1], axis=1)
        local = strategy.experimental_local_results(variables[0].value)
        self._blocks = {}
        for device in dict.fromkeys(v.device for v in local):
            with tf.init_scope(), tf.device(device):
                self._blocks[device] = [tf.cast(tf.constant(block), dtype) for block in blocks]

    def on(self, device):
        """The components on a device: list of tensors [k, size of the weight].

        Args:
            device: device string; one that holds no copy gets that of the first device.
        """
        return on_device(self._blocks, device)


def on_device(values, device):
    """The entry of a dict by device strings for a device, whichever way its string is spelt."""
    found = [v for name, v in values.items() if device_key(name) == device_key(device)]
    return found[0] if found else next(iter(values.values()))


def device_key(device):
    """Kind and number of a device of this process, which its strings spell in several ways."""
    spec = tf.DeviceSpec.from_string(device or "")
    return spec.device_type or "CPU", spec.device_index or 0


def project(blocks, gradients):
    """Coordinates of a gradient in the subspace, `P g`.

    Args:
        blocks: list of tensors [k, size], from `DeviceBasis.on`.
        gradients: list of tensors in the shapes of the weights; None counts as zero.

    Returns:
        float32 tensor [k].
    """
    parts = [
        tf.linalg.matvec(tf.cast(block, tf.float32), tf.cast(tf.reshape(g, [-1]), tf.float32))
        for block, g in zip(blocks, gradients, strict=True)
        if g is not None
    ]
    return tf.add_n(parts)


def back_project(blocks, coordinates, shapes):
    """Points of the subspace in the space of the weights, `P^T c` for each row c.

    Several rows at once cost hardly more than one: the time goes into reading P.

    Args:
        blocks: list of tensors [k, size], from `DeviceBasis.on`.
        coordinates: float32 tensor [rows, k].
        shapes: list of the weights' shapes.

    Returns:
        List, one a row, of lists of float32 tensors in the shapes of the weights.
    """
    products = [tf.matmul(coordinates, tf.cast(block, tf.float32)) for block in blocks]
    return [
        [tf.reshape(p[row], shape) for p, shape in zip(products, shapes, strict=True)]
        for row in range(coordinates.shape[0])
    ]
