"""Logs for callbacks in steps without an exchange."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.steps.plain_variable import PlainVariable


class KeptLogs:
    """Keeps the logs of the last step in which processes averaged them.

    So a callback stops training on all processes.
    """

    def __init__(self) -> None:
        self._kept: dict[int, PlainVariable] = {}

    def agree(self, logs: Any, reduce: Callable[[Any], Any], agrees: tf.Tensor) -> Any:
        """Means of a step's logs over processes if `agrees` or none are kept; else the kept means.

        `logs` is a structure of tensors of fixed shapes, `reduce` takes its mean, and `agrees` is a
        scalar bool, the same on all processes.
        """
        flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(logs)]
        sizes = [value.shape.num_elements() for value in flat]
        if not sizes:
            return logs
        variable = self._variable(sum(sizes))

        def agree():
            means = tf.nest.flatten(reduce(flat))
            parts = [tf.reshape(tf.cast(mean, tf.float32), [-1]) for mean in means]
            kept = tf.concat([*parts, [1.0]], 0)
            variable.assign(kept)
            return kept

        kept = tf.cond(agrees | tf.equal(variable.read()[-1], 0.0), agree, variable.read)
        parts = tf.split(kept[:-1], sizes)
        means = [tf.cast(tf.reshape(p, v.shape), v.dtype) for p, v in zip(parts, flat, strict=True)]
        return tf.nest.pack_sequence_as(logs, means)

    def _variable(self, size):
        """Variable for `size` numbers and a flag, 0 until they are set."""
        if size not in self._kept:
            self._kept[size] = PlainVariable("kept_logs", np.zeros(size + 1, np.float32))
        return self._kept[size]
