"""Sparse gradients, `tf.IndexedSlices`: as dense tensors, and with distinct rows."""

from typing import Any

import tensorflow as tf


def as_dense(gradient: Any, shape: tf.TensorShape) -> Any:
    """Converts sparse rows to a dense tensor; other gradients stay as they are."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.ensure_shape(tf.convert_to_tensor(gradient), shape)


def distinct_rows(positions: tf.Tensor, rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums rows `[n, ...]` with equal positions; returns `[m]`, in first order, and the sums.

    Example:
    >>> positions, rows = distinct_rows(tf.constant([7, 2, 7]), tf.constant([1.0, 2.0, 4.0]))
    >>> positions.numpy().tolist(), rows.numpy().tolist()
    ([7, 2], [5.0, 2.0])
    """
    positions, place = tf.unique(positions)
    return positions, tf.math.unsorted_segment_sum(rows, place, tf.size(positions))
