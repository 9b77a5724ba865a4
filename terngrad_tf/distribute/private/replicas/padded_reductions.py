"""Reductions within steps whose replicas have different numbers of examples, or none.

Synchronized batch norm and users reduce values over a whole batch. A replica without examples adds
0 to a sum and no row to a gather.
"""

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.padding import (
    NO_PADDING,
    Padding,
    current_padding,
    has_summands,
    padded_replica,
    share_of,
    summand,
)


def is_sum_of_replicas(tensor: Any) -> bool:
    """Returns True for a result of `all_reduce("sum", ...)`."""
    return getattr(tensor, "_reduced_by", None) == tf.distribute.ReduceOp.SUM


def averaged_over_replicas(tensor: Any) -> Any:
    """Returns this replica's part of a result of `all_reduce("mean", ...)`; else the tensor."""
    is_mean = getattr(tensor, "_reduced_by", None) == tf.distribute.ReduceOp.MEAN
    return tensor._reduced_from if is_mean else tensor


@patch(distribute_lib.ReplicaContextBase, "all_reduce")
def _reduce(stock, self, reduce_op, value, options=None):
    """Leaves out replicas without examples, unknown to `tf.distribute`, and notes its operation."""
    reduce_op = tf.distribute.ReduceOp(getattr(reduce_op, "value", reduce_op).upper())
    reduced = _reduce_examples(stock, self, reduce_op, value, options)
    for part, result in zip(tf.nest.flatten(value), tf.nest.flatten(reduced), strict=True):
        tensors = tf.nest.flatten(result, expand_composites=True)
        # TensorFlow shares eager constants.
        if all(map(tf.is_symbolic_tensor, tensors)):
            for tensor in (result, *tensors):
                tensor._reduced_by, tensor._reduced_from = reduce_op, part
    return reduced


def _reduce_examples(stock, self, reduce_op, value, options):
    padding = current_padding()
    flat = [_tensor(v) for v in tf.nest.flatten(value)]
    if padding is NO_PADDING or not has_summands(reduce_op, flat):
        return stock(self, reduce_op, value, options)
    if reduce_op == tf.distribute.ReduceOp.MEAN:
        padding = Padding(padding.is_empty, share_of(padding))
    parts = [summand(reduce_op, v, padding) for v in flat]
    # Its gradient, a sum, passes through this function, too.
    summed = stock(self, tf.distribute.ReduceOp.SUM, parts, options)
    return tf.nest.pack_sequence_as(value, summed)


@patch(distribute_lib.ReplicaContext, "all_gather")
def _gather_examples(stock, self, value, axis, options=None):
    """Gathers no rows of replicas without examples, unknown to `tf.distribute`."""
    is_empty = current_padding().is_empty
    if is_empty is None:
        return stock(self, value, axis, options)

    def gather(*tensors):
        with padded_replica(NO_PADDING):
            return stock(self, list(tensors), axis, options)

    @tf.custom_gradient
    def gather_rows(*tensors):
        sizes = [tf.where(is_empty, 0, tf.shape(tensor)[axis]) for tensor in tensors]
        kept = [
            tf.gather(tensor, tf.range(size), axis=axis)
            for tensor, size in zip(tensors, sizes, strict=True)
        ]

        def gradient(*upstream):
            own = []
            for tensor, size, total in zip(
                tensors, sizes, self.all_reduce("SUM", list(upstream)), strict=True
            ):
                with padded_replica(NO_PADDING):
                    of_replicas = stock(self, size[tf.newaxis], 0, options)
                first = tf.reduce_sum(of_replicas[: self.replica_id_in_sync_group])
                rows = tf.gather(total, tf.range(first, first + size), axis=axis)
                own.append(tf.cond(is_empty, lambda t=tensor: tf.zeros_like(t), lambda r=rows: r))
            return own

        return gather(*kept), gradient

    return tf.nest.pack_sequence_as(value, gather_rows(*tf.nest.flatten(value)))


def _tensor(value):
    return value if isinstance(value, tf.IndexedSlices) else tf.convert_to_tensor(value)
