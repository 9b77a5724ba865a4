"""Sums sparse gradient rows, so that rows that are distinct on each replica stay distinct.

TensorFlow concatenates rows of `tf.IndexedSlices`, and Keras optimizers square and clip each row
separately. A lookup of sparse ids (`tf.nn.embedding_lookup_sparse`, a dense layer of a
`tf.SparseTensor`) gives distinct rows; rows of several replicas must be summed. Other lookups
(`keras.layers.Embedding`) give one row per id, with any number of replicas.
"""

from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph

from terngrad_tf.distribute.private.replicas.devices import (
    is_distributed,
    local_tensors,
    mirrored,
    per_replica,
)
from terngrad_tf.distribute.steps.slices import distinct_rows

# Operations that make positions unique, and that keep them in order.
_UNIQUE = ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
_SAME_ORDER = ("Identity", "Reshape", "Cast")


def with_static_shape(gradient: Any, shape: tf.TensorShape) -> Any:
    """Returns a value whose `tf.IndexedSlices` know their shape when traced.

    A shape that is a tensor loses its value on the way to a merge function.

    Args:
        gradient: tensor or `tf.IndexedSlices`, or a value with one for each local replica.
        shape: the weight's shape.
    """
    parts = local_tensors(gradient)
    if not isinstance(parts[0], tf.IndexedSlices):
        return gradient
    shape = tf.constant(shape.as_list(), parts[0].indices.dtype)
    parts = [tf.IndexedSlices(part.values, part.indices, shape) for part in parts]
    return per_replica(parts) if is_distributed(gradient) else parts[0]


def num_lookups(gradient: Any) -> int:
    """Returns the number of lookups, each of distinct rows, in a replica's gradient.

    0 if rows may occur more than once, and in eager code, which hides the lookups.
    """
    return len(_lookups(gradient) or ())


def separate_lookups(gradient: Any, num_rows: int) -> Any:
    """Gives the same row of different lookups different positions, for `sum_rows`.

    `num_rows` counts the weight's rows.
    """
    lookups = _lookups(gradient) or ()
    if len(lookups) < 2:
        return gradient
    lengths = [tf.size(positions) for positions in lookups]
    number = tf.repeat(tf.range(len(lookups), dtype=tf.int64), lengths)
    positions = tf.cast(gradient.indices, tf.int64) + number * num_rows
    return tf.IndexedSlices(gradient.values, positions, gradient.dense_shape)


def sum_rows(strategy: tf.distribute.Strategy, value: Any, num_rows: int) -> Any:
    """Sums rows with the same position and undoes `separate_lookups`; cross-replica.

    Args:
        value: `tf.IndexedSlices` on each device, with the rows of all replicas.
        num_rows: rows of the weight.
    """
    devices, of_device = strategy.extended.worker_devices, {}
    for device, slices in zip(devices, local_tensors(value, len(devices)), strict=True):
        if device not in of_device:
            with tf.device(device):
                positions, rows = distinct_rows(slices.indices, slices.values)
                of_device[device] = tf.IndexedSlices(rows, positions % num_rows, slices.dense_shape)
    return mirrored([of_device[device] for device in devices])


def _lookups(gradient):
    """Returns the positions of each lookup's rows, in the gradient's order; None if unknown."""
    if not isinstance(gradient, tf.IndexedSlices) or tf.executing_eagerly():
        return None
    lookups = []
    # A stack: the last part is pushed first.
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
    """Returns the tensor captured for a function's placeholder; other tensors as they are."""
    while tf.is_symbolic_tensor(tensor) and isinstance(tensor.graph, func_graph.FuncGraph):
        outside = [external for external, own in tensor.graph.captures if own is tensor]
        if not outside:
            break
        (tensor,) = outside
    return tensor
