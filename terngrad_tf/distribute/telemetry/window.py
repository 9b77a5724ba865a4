"""The latest rows of numbers that steps append."""

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.steps.plain_variable import PlainVariable


class Window:
    """Keeps the last rows that steps appended."""

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self._shape = (num_rows, num_columns)
        self._variables: tuple[PlainVariable, PlainVariable] | None = None

    def append(self, row: tf.Tensor) -> None:
        """Adds a row, a float64 tensor `[num_columns]`, in the graph under construction."""
        if self._variables is None:
            self._variables = (
                PlainVariable("window", np.zeros(self._shape)),
                PlainVariable("window_count", np.zeros([], np.int64)),
            )
        rows, count = self._variables
        number = count.read()
        place = (number % self._shape[0])[tf.newaxis, tf.newaxis]
        with tf.device("CPU:0"):
            rows.assign(tf.tensor_scatter_nd_update(rows.read(), place, row[tf.newaxis]))
        count.assign(number + 1)

    @property
    def count(self) -> int:
        """Number of rows that were ever appended."""
        return 0 if self._variables is None else int(self._variables[1].numpy())

    def read(self) -> np.ndarray:
        """The rows, oldest first: float64 `[at most num_rows, num_columns]`."""
        if self._variables is None:
            return np.zeros([0, self._shape[1]])
        rows, number = self._variables[0].numpy(), self.count
        if number <= len(rows):
            return rows[:number]
        return np.roll(rows, -(number % len(rows)), axis=0)
