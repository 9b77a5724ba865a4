"""Replicas whose batches differ in length or are empty.

The last batch of an epoch may have fewer examples than there are replicas. A replica without
examples computes on another's example, or on a row of zeros, whose results are left out. Means
weight replicas by examples.
"""

import contextlib
import functools
import threading
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_utils, values
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.data import batches
from terngrad_tf.distribute.private.replicas.devices import is_distributed, local_tensors
from terngrad_tf.distribute.steps.contexts import optimizer_of_local_step, same_loop


class Padding(typing.NamedTuple):
    """A replica's knowledge of its part of a batch.

    Attributes:
        is_empty: boolean tensor, True if the replica has no example of its own; None: never.
        share: float64 tensor, the replica's share of all examples; None: equal shares, or see
            `share_of`.
        rows: float64 tensor, the replica's examples, if processes have not told theirs.
    """

    is_empty: typing.Any
    share: typing.Any
    rows: typing.Any = None


NO_PADDING = Padding(None, None)
_state = threading.local()


def current_padding() -> Padding:
    """`Padding` of the current replica's batch."""
    return getattr(_state, "padding", NO_PADDING)


@contextlib.contextmanager
def padded_replica(padding: Padding | None) -> Iterator[None]:
    """Context in which a replica computes on a batch with this `Padding`; in replica context."""
    previous, _state.padding = current_padding(), padding
    try:
        yield
    finally:
        _state.padding = previous


def share_of(padding: Padding) -> typing.Any:
    """A replica's share of all examples, or None, as in `Padding`; in replica context.

    Processes that have not told their numbers of examples exchange them.
    """
    if padding.rows is None:
        return padding.share
    with padded_replica(NO_PADDING):
        total = tf.distribute.get_replica_context().all_reduce("SUM", padding.rows)
    return padding.rows / tf.maximum(total, 1.0)


def mask_gradients(gradients: Sequence[Any]) -> list[Any]:
    """Replaces the gradients of a padded replica by zeros; in replica context.

    Not by a product: gradients of zeros may be NaN.
    """
    empty = current_padding().is_empty
    if empty is None:
        return list(gradients)
    return [None if g is None else _zero_where(empty, g) for g in gradients]


def _zero_where(condition, value):
    if isinstance(value, tf.IndexedSlices):
        rows = _zero_where(condition, value.values)
        return tf.IndexedSlices(rows, value.indices, value.dense_shape)
    return tf.where(condition, tf.zeros_like(value), value)


def has_summands(reduce_op: tf.distribute.ReduceOp, values: Sequence[Any]) -> bool:
    """Returns True if values are reduced by adding `summand`s: integers have no weighted mean."""
    is_mean = reduce_op == tf.distribute.ReduceOp.MEAN
    return not (is_mean and any(value.dtype.is_integer for value in values))


def summand(reduce_op: tf.distribute.ReduceOp, value: Any, padding: Padding) -> Any:
    """Returns a replica's summand for a value that is reduced.

    A MEAN needs `padding.share`.
    """
    if padding.is_empty is not None:
        value = _zero_where(padding.is_empty, value)
    if reduce_op != tf.distribute.ReduceOp.MEAN:
        return value
    share = tf.cast(padding.share, value.dtype)
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(value.values * share, value.indices, value.dense_shape)
    return value * share


class PaddedReplicas(LocalReplicas):
    """Runs functions of a strategy's `extended` on parts of a batch."""

    def run_padded(self, fn: Callable[..., Any], args: Sequence[Any], returns_rows: bool) -> Any:
        """Runs `strategy.run` on batches that need not divide evenly among the replicas.

        Args:
            fn: function of structures of tensors with a batch axis.
            args: values with a batch per device or per replica.
            returns_rows: True if the results have a batch axis, too; rows of zeros are cut.
        """
        jit_compile = False
        if isinstance(fn, polymorphic_function.Function):
            # `merge_call`s must not lie inside a nested function.
            fn, jit_compile = fn.python_function, bool(fn._jit_compile)
        num_replicas = len(self._device_of_replica)
        args = tf.nest.map_structure(self._split_undistributed, args)
        rows = [_num_rows(distribute_utils.select_replica(w, args)) for w in range(num_replicas)]
        if any(r is None for r in rows) or (self.process_group is None and _are_even(rows)):
            with self.compiling(jit_compile):
                return self._container_strategy().run(fn, args=args)
        return self._run_uneven(fn, args, rows, jit_compile, returns_rows)

    def _run_uneven(self, fn, args, rows, jit_compile, returns_rows):
        """Runs a function on batches of a known number of rows, which may differ or be 0."""
        may_be_empty = not all(isinstance(r, int) and r for r in rows)
        if may_be_empty:
            args = tf.nest.map_structure(_repeat_first, args)
        examples = sum(rows)
        rows = [tf.cast(r, tf.int32) for r in rows]
        empty = values.PerReplica([tf.equal(r, 0) for r in rows]) if may_be_empty else None
        # Eager code runs replicas in threads.
        in_loop = same_loop()
        shares = functools.cache(lambda: self._shares(rows))
        # Rows are not averaged, so processes tell their numbers only to those who ask.
        is_asked = self.process_group is None or not returns_rows
        share = values.PerReplica(shares()) if is_asked else None
        own_rows = None if is_asked else values.PerReplica([tf.cast(r, tf.float64) for r in rows])

        def pad(args):
            return _map_tensors(_pad_empty, args) if may_be_empty else args

        def cut(results, is_empty):
            if may_be_empty and returns_rows:
                return _map_tensors(_cut_if, results, is_empty)
            return results

        @tf.autograph.experimental.do_not_convert
        def on_padded(is_empty, share, own_rows, args):
            with in_loop(), padded_replica(Padding(is_empty, share, own_rows)):
                if jit_compile:
                    return fn(*args)
                return cut(fn(*pad(args)), is_empty)

        if jit_compile:
            # XLA allows no shapes that depend on values: pad and cut outside.
            args = pad(args)
        with self.turn:
            self.shares_of_run, self.examples_of_run = shares, examples
            try:
                with self.compiling(jit_compile):
                    results = self._container_strategy().run(
                        on_padded, args=(empty, share, own_rows, args)
                    )
            finally:
                self.shares_of_run = self.examples_of_run = None
        return cut(results, empty) if jit_compile else results

    def _split_undistributed(self, value):
        """Splits a batch that is not distributed (`train_on_batch`) among the local replicas."""
        num_replicas = len(self._device_of_replica)
        is_batch = isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor | np.ndarray)
        if not is_batch or (num_replicas == 1 and self.process_group is None):
            return value
        if isinstance(value, np.ndarray):
            value = tf.convert_to_tensor(value)
        if num_replicas == 1 or not value.shape.rank:
            return value
        return values.PerReplica(batches.split_rows(value, num_replicas))

    def _shares(self, rows):
        total = tf.add_n(rows)
        if optimizer_of_local_step() is not None:
            # Without an exchange, assume equal numbers on other processes.
            total *= self._num_replicas_in_sync // len(rows)
        elif self.process_group is not None:
            (total,) = tf.unstack(self.process_group.all_reduce_sum(total[tf.newaxis]))
        total = tf.cast(tf.maximum(total, 1), tf.float64)
        return [tf.cast(r, tf.float64) / total for r in rows]


def _are_even(rows):
    """Returns True if replicas have one known number of rows, not 0; a single one may have any."""
    is_known = all(isinstance(r, int) and r for r in rows)
    return len(rows) == 1 or (is_known and len(set(rows)) == 1)


def _map_tensors(function, structure, *others):
    """Calls a function of tensors for each tensor, once per replica if replicas have their own."""

    def of_value(value):
        if not is_distributed(value):
            own = (local_tensors(other)[0] for other in others)
            return function(value, *own)
        count = len(value.values)
        own = (local_tensors(other, count) for other in others)
        return values.PerReplica([function(*each) for each in zip(value.values, *own, strict=True)])

    return tf.nest.map_structure(of_value, structure)


def _cut_if(rows, is_empty):
    """Returns no rows if the replica computed on a row of zeros."""
    if isinstance(rows, tf.SparseTensor):
        shape = rows.dense_shape * tf.cast(tf.logical_not(is_empty), tf.int64)
        shape = tf.concat([shape[:1], rows.dense_shape[1:]], 0)
        return tf.sparse.slice(rows, tf.zeros_like(shape), shape)
    return rows[: tf.where(is_empty, 0, tf.shape(rows)[0])]


def _num_rows(structure):
    """Returns the rows of the first tensor with a batch axis: an int, a tensor, or None."""
    for batch in tf.nest.flatten(structure):
        if isinstance(batch, tf.RaggedTensor):
            return batch.nrows()
        if isinstance(batch, tf.SparseTensor):
            return batch.dense_shape[0]
        if isinstance(batch, tf.Tensor) and batch.shape.rank:
            return batch.shape[0] if batch.shape[0] is not None else tf.shape(batch)[0]
    return None


def _pad_empty(tensor):
    """Replaces an empty batch by one row of zeros.

    On an empty batch several CPU kernels abort, return wrong shapes or, backwards, NaN.
    """
    if isinstance(tensor, tf.SparseTensor):
        # An empty sparse tensor has no values.
        shape = tf.concat([tf.maximum(tensor.dense_shape[:1], 1), tensor.dense_shape[1:]], 0)
        return tf.SparseTensor(tensor.indices, tensor.values, shape)
    if isinstance(tensor, tf.RaggedTensor):
        return _pad_empty_ragged(tensor)
    if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank or tensor.shape[0]:
        return tensor

    def one_of_zeros():
        zeros = tf.zeros(tf.concat([[1], tf.shape(tensor)[1:]], 0), tensor.dtype)
        return tf.ensure_shape(zeros, [None, *tensor.shape[1:]])

    return tf.cond(tf.equal(tf.shape(tensor)[0], 0), one_of_zeros, lambda: tensor)


def _repeat_first(value):
    """Gives local replicas without examples an example of the first, which layers do not refuse.

    Zeros may be no entry of a vocabulary, or no input of a logarithm.
    """
    parts = local_tensors(value)
    is_batch = isinstance(parts[0], tf.Tensor) and parts[0].shape.rank
    if not (is_batch and is_distributed(value)):
        return value
    first = parts[0][:1]
    # Not `tf.concat`: examples of other datasets may have other lengths.
    return values.PerReplica(
        [
            tf.cond(tf.equal(tf.shape(part)[0], 0), lambda: first, lambda part=part: part)
            for part in parts
        ]
    )


def _pad_empty_ragged(ragged):
    """Like `_pad_empty`: returns a row with one element in each ragged dimension."""
    flat, *splits = ragged.flat_values, *ragged.nested_row_splits

    def one_of_zeros():
        rows, of_one = 1, []
        for length in ragged.shape[1 : ragged.ragged_rank + 1]:
            length = 1 if length is None else length
            of_one.append(tf.range(rows + 1, dtype=ragged.row_splits.dtype) * length)
            rows *= length
        return [tf.zeros(tf.concat([[rows], tf.shape(flat)[1:]], 0), flat.dtype), *of_one]

    flat_shape = flat.shape
    flat, *splits = tf.cond(tf.equal(ragged.nrows(), 0), one_of_zeros, lambda: [flat, *splits])
    flat = tf.ensure_shape(flat, [None, *flat_shape[1:]])
    return tf.RaggedTensor.from_nested_row_splits(flat, splits, validate=False)
