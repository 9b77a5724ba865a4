"""Sums sparse gradient rows, so that rows that are distinct on each replica stay distinct.

TensorFlow concatenates rows of `tf.IndexedSlices`, and Keras optimizers square and clip each row
separately. A lookup of sparse ids (`tf.nn.embedding_lookup_sparse`, a dense layer of a
`tf.SparseTensor`) gives distinct rows; rows of several replicas must be summed. So must rows of the
same ids on all replicas (embeddings of positions, which do not depend on examples). Other lookups
(`keras.layers.Embedding` of words) give one row per id, with any number of replicas.
"""

import enum
import itertools
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.replicas.devices import (
    is_distributed,
    local_tensors,
    mirrored,
    per_replica,
)
from terngrad_tf.distribute.private.replicas.replica_data import (
    differs,
    example_counts,
    original,
)
from terngrad_tf.distribute.steps.slices import distinct_rows

# Operations that make positions unique, and that keep them in order.
_UNIQUE = ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
_SAME_ORDER = ("Identity", "Reshape", "Cast")


class _Rows(enum.Enum):
    """Which rows of a lookup are one row without a strategy."""

    DISTINCT = enum.auto()  # those of one position
    SAME = enum.auto()  # the first of all replicas, the second of all replicas, ...
    OWN = enum.auto()  # none


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


def must_be_summed(gradient: Any) -> bool:
    """Returns True if rows of a replica's gradient must be summed with those of other replicas.

    False in eager code, which hides the lookups.
    """
    return any(kind is not _Rows.OWN for _, kind in _lookups(gradient))


def separate_rows(gradient: Any, num_rows: int) -> Any:
    """Gives rows that must not be summed different positions, for `sum_rows`.

    `num_rows` counts the weight's rows.
    """
    lookups = _lookups(gradient)
    if [kind for _, kind in lookups] == [_Rows.DISTINCT]:
        return gradient
    replicas = tf.distribute.get_replica_context()
    # Rows of one number and position are summed. A lookup has the numbers of its remainder: `OWN`
    # ones have a remainder for each replica.
    widths = [replicas.num_replicas_in_sync if k is _Rows.OWN else 1 for _, k in lookups]
    numbers = []
    for (ids, kind), end in zip(lookups, itertools.accumulate(widths), strict=True):
        place = tf.range(tf.size(ids, tf.int64))
        remainder = tf.constant(end - 1, tf.int64)
        if kind is _Rows.OWN:
            remainder -= tf.cast(replicas.replica_id_in_sync_group, tf.int64)
        if kind is _Rows.DISTINCT:
            place = tf.zeros_like(place)
        numbers.append(place * sum(widths) + remainder)
    number = tf.concat(numbers, 0)
    positions = tf.cast(gradient.indices, tf.int64) + number * num_rows
    return tf.IndexedSlices(gradient.values, positions, gradient.dense_shape)


def sum_rows(strategy: tf.distribute.Strategy, value: Any, num_rows: int) -> Any:
    """Sums rows with the same position and undoes `separate_rows`; cross-replica.

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
    """Returns [(ids, which rows are one row)] of the lookups, in the gradient's order."""
    if not isinstance(gradient, tf.IndexedSlices) or tf.executing_eagerly():
        return []
    strategy = tf.distribute.get_strategy()
    group = getattr(strategy.extended, "process_group", None)
    lookups = []
    # A stack: the last part is pushed first.
    pending = [gradient.indices]
    while pending:
        ids = pending.pop()
        source = original(ids)
        operation = source.op if tf.is_symbolic_tensor(source) else None
        if operation is not None and operation.type in _SAME_ORDER:
            pending.append(operation.inputs[0])
        elif operation is not None and operation.type == "ConcatV2" and source.shape.rank == 1:
            *parts, _ = operation.inputs
            pending += reversed(parts)
        elif operation is not None and operation.type in _UNIQUE and source.value_index == 0:
            lookups.append((source, _Rows.DISTINCT))
        elif not _are_shared(source, gradient, group):
            lookups.append((source, _Rows.OWN))
        else:
            lookups.append((source, _Rows.SAME))
    return lookups


def _are_shared(ids, gradient, group):
    """Returns True if all examples share the ids of a lookup, whose rows depend on examples."""
    if differs(ids, group, but_for_lengths=True) or not differs(gradient.values, group):
        return False
    rank = ids.shape.rank
    # Constant ids `[examples, ...]` are those of a known number of examples.
    has_row_per_example = rank is None or (
        rank > 1 and ids.shape[0] in example_counts(gradient.values, group)
    )
    return not has_row_per_example
