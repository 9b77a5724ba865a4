"""The newest rows of numbers that steps leave, kept where they run."""

import itertools

import numpy as np
import tensorflow as tf

_names = itertools.count()


class Window:
    """Keeps the last rows that steps appended.

    Args:
        num_rows: rows that are kept.
        num_columns: numbers a row.
    """

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self._shape = (num_rows, num_columns)
        self._handles: tuple[tf.Tensor, ...] | None = None

    def append(self, row: tf.Tensor) -> None:
        """Adds a row, a float64 tensor `[num_columns]`, in the graph under construction."""
        rows, count = self._made()
        with tf.device("CPU:0"):
            number = tf.raw_ops.ReadVariableOp(resource=count, dtype=tf.int64)
            tf.raw_ops.ResourceScatterUpdate(
                resource=rows,
                indices=(number % self._shape[0])[tf.newaxis],
                updates=row[tf.newaxis],
            )
            tf.raw_ops.AssignAddVariableOp(resource=count, value=tf.constant(1, tf.int64))

    @property
    def count(self) -> int:
        """Rows that were ever appended."""
        return 0 if self._handles is None else int(self._value(1))

    def read(self) -> np.ndarray:
        """The rows, oldest first: float64 `[at most num_rows, num_columns]`."""
        if self._handles is None:
            return np.zeros([0, self._shape[1]])
        rows, number = self._value(0), self.count
        if number <= len(rows):
            return rows[:number]
        return np.roll(rows, -(number % len(rows)), axis=0)

    def _value(self, position):
        """The rows (0) or their number (1)."""
        with tf.init_scope():
            return tf.raw_ops.ReadVariableOp(
                resource=self._handles[position], dtype=(tf.float64, tf.int64)[position]
            ).numpy()

    def _made(self):
        if self._handles is None:
            with tf.init_scope(), tf.device("CPU:0"):
                # Below `tf.Variable`, of which a strategy would make a mirrored one.
                handles = []
                for zeros in (tf.zeros(self._shape, tf.float64), tf.zeros([], tf.int64)):
                    handle = tf.raw_ops.VarHandleOp(
                        dtype=zeros.dtype,
                        shape=zeros.shape,
                        shared_name=f"terngrad_tf/window_{next(_names)}",
                    )
                    tf.raw_ops.AssignVariableOp(resource=handle, value=zeros)
                    handles.append(handle)
            self._handles = tuple(handles)
        return self._handles
