"""Rows of gradients that occur once on each replica, and once in all where they are summed.

The gradient of a weight of which a batch uses some rows (embeddings, layers of sparse inputs) is
`tf.IndexedSlices`. TensorFlow sums such gradients by concatenating their rows, and Keras optimizers
square and clip each row for itself. Without a strategy, the rows that a lookup of sparse ids
(`tf.nn.embedding_lookup_sparse`, a dense layer of a `tf.SparseTensor`) leaves are distinct, as it
looks each row up once. Those of replicas must then become distinct by being summed. Other lookups
(`keras.layers.Embedding`) leave a row for each of their ids, on any number of replicas.
"""

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph

from terngrad_tf.distribute.private.replicas.devices import local_tensors, mirrored

# Operations whose results' positions are looked up, and those that keep them and their order.
_UNIQUE = ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
_SAME_ORDER = ("Identity", "Reshape", "Cast")


def num_lookups(gradient: Any) -> int:
    """Of how many lookups, each of distinct rows, a replica's gradient consists.

    Args:
        gradient: tensor or `tf.IndexedSlices`.

    Returns:
        integer; 0 where rows may occur more than once, and in eager code, which does not tell.
    """
    return len(_lookups(gradient) or ())


def separate_lookups(gradient: Any, num_rows: int) -> Any:
    """Gives the same row of different lookups different positions, for `sum_rows`.

    Args:
        gradient: as for `num_lookups`.
        num_rows: rows of the weight.
    """
    lookups = _lookups(gradient) or ()
    if len(lookups) < 2:
        return gradient
    lengths = [tf.size(positions) for positions in lookups]
    number = tf.repeat(tf.range(len(lookups), dtype=tf.int64), lengths)
    positions = tf.cast(gradient.indices, tf.int64) + number * num_rows
    return tf.IndexedSlices(gradient.values, positions, gradient.dense_shape)


def sum_rows(strategy: tf.distribute.Strategy, value: Any, num_rows: int) -> Any:
    """Sums the rows with the same position, and undoes `separate_lookups`; cross-replica.

    Args:
        strategy: whose replicas' rows were concatenated.
        value: `tf.IndexedSlices` on each device.
        num_rows: rows of the weight.
    """
    devices, of_device = strategy.extended.worker_devices, {}
    for device, slices in zip(devices, local_tensors(value, len(devices)), strict=True):
        if device not in of_device:
            with tf.device(device):
                positions, place = tf.unique(slices.indices)
                rows = tf.math.unsorted_segment_sum(slices.values, place, tf.size(positions))
                of_device[device] = tf.IndexedSlices(rows, positions % num_rows, slices.dense_shape)
    return mirrored([of_device[device] for device in devices])


def _lookups(gradient):
    """Positions of each lookup's rows, in the order of the gradient's rows; None if unknown."""
    if not isinstance(gradient, tf.IndexedSlices) or tf.executing_eagerly():
        return None
    lookups = []
    # The last are on top.
    pending = [gradient.indices]
    while pending:
        tensor = _captured(pending.pop())
        if not tf.is_symbolic_tensor(tensor):
            return None
        if tensor.op.type in _UNIQUE and tensor.value_index == 0:
            lookups.append(tensor)
        elif tensor.op.type in _SAME_ORDER:
            pending.append(tensor.op.inputs[0])
        elif tensor.op.type == "ConcatV2":
            *parts, _ = tensor.op.inputs
            pending += reversed(parts)
        else:
            return None
    return lookups


def _captured(tensor):
    """The tensor for which a placeholder of a function stands, or what is given."""
    while tf.is_symbolic_tensor(tensor) and isinstance(tensor.graph, func_graph.FuncGraph):
        outside = [external for external, own in tensor.graph.captures if own is tensor]
        if not outside:
            break
        (tensor,) = outside
    return tensor
