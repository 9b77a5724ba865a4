"""Gathers what a model predicts from all processes, of every type that one process predicts."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.replicas.devices import (
    is_distributed,
    local_tensors,
    per_replica,
)

# Types that travel as others: TensorFlow gathers few.
_WIDER = {
    **dict.fromkeys((tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16), tf.int32),
    tf.uint32: tf.int64,
    tf.bfloat16: tf.float32,
}
_BYTES = [bytes([byte]) for byte in range(256)]


def gather_rows(strategy: tf.distribute.Strategy, value: Any) -> Any:
    """Returns the rows of all replicas in their order, in cross-replica context.

    Args:
        value: tensor, `tf.RaggedTensor` or `tf.SparseTensor`, or a value with one for each local
            replica.
    """

    def gather(function: Callable[[Any], Any]) -> Any:
        parts = [function(part) for part in local_tensors(value)]
        of_parts = per_replica(parts) if is_distributed(value) else parts[0]
        return gather_rows(strategy, of_parts)

    first = local_tensors(value)[0]
    if isinstance(first, tf.RaggedTensor):
        lengths = [
            gather(lambda ragged, axis=axis: ragged.nested_row_lengths()[axis])
            for axis in range(first.ragged_rank)
        ]
        flat = gather(lambda ragged: ragged.flat_values)
        return tf.RaggedTensor.from_nested_row_lengths(flat, lengths, validate=False)
    if isinstance(first, tf.SparseTensor):
        rows = gather(lambda sparse: sparse.dense_shape[:1])
        counts = gather(lambda sparse: tf.shape(sparse.indices)[:1])
        others = gather(lambda sparse: sparse.dense_shape[tf.newaxis, 1:])
        begins = tf.repeat(tf.cumsum(rows, exclusive=True), counts)
        indices = gather(lambda sparse: sparse.indices)
        indices = tf.concat([indices[:, :1] + begins[:, tf.newaxis], indices[:, 1:]], 1)
        shape = tf.concat([[tf.reduce_sum(rows)], tf.reduce_max(others, 0)], 0)
        return tf.SparseTensor(indices, gather(lambda sparse: sparse.values), shape)
    if first.dtype == tf.string:
        codes = gather(_codes)
        characters = codes.with_flat_values(tf.gather(_BYTES, codes.flat_values))
        texts = tf.strings.reduce_join(characters, axis=-1)
        return tf.reshape(texts, tf.concat([[-1], tf.shape(first)[1:]], 0))
    if first.dtype in _WIDER:
        return tf.cast(gather(lambda tensor: tf.cast(tensor, _WIDER[tensor.dtype])), first.dtype)
    return strategy.gather(value, axis=0)


def _codes(texts):
    """Returns the bytes of each text as a row of int32."""
    characters = tf.strings.bytes_split(tf.reshape(texts, [-1]))
    codes = tf.reshape(tf.io.decode_raw(characters.flat_values, tf.uint8), [-1])
    return characters.with_flat_values(tf.cast(codes, tf.int32))
