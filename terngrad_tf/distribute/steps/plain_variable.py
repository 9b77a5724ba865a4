"""Variable that steps can create while they are traced, and that no strategy mirrors."""

import itertools
from typing import Any

import numpy as np
import tensorflow as tf

_numbers = itertools.count()


class PlainVariable:
    """Numbers that steps of one process read and write, under any strategy.

    A strategy would mirror a `tf.Variable`, and a step that is traced again cannot create one.
    """

    def __init__(self, name: str, value: Any) -> None:
        self._dtype, self._shape = tf.as_dtype(value.dtype), value.shape
        with tf.init_scope(), tf.device("CPU:0"):
            self._handle = tf.raw_ops.VarHandleOp(
                dtype=self._dtype,
                shape=value.shape,
                shared_name=f"terngrad_tf/{name}_{next(_numbers)}",
            )
            tf.raw_ops.AssignVariableOp(resource=self._handle, value=tf.constant(value))

    def read(self) -> tf.Tensor:
        """The value; in a step, the value when the step reads it."""
        with tf.device("CPU:0"):
            value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)
            # TensorFlow forgets the shape inside a branch.
            return tf.ensure_shape(value, self._shape)

    def assign(self, value: tf.Tensor) -> None:
        """Sets the value."""
        with tf.device("CPU:0"):
            tf.raw_ops.AssignVariableOp(resource=self._handle, value=value)

    def numpy(self) -> np.ndarray:
        """The value now, also while a step is traced."""
        with tf.init_scope():
            return self.read().numpy()
