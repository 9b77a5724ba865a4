"""Logs for callbacks in steps without an exchange."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.steps.plain_variable import PlainVariable


class KeptLogs:
    """Keeps the logs of the last step in which processes averaged them, and of the last step.

    So a callback stops training on all processes.
    """

    def __init__(self) -> None:
        # Kept means with a flag, 0 until they are set; and the process's own last logs.
        self._variables: dict[int, tuple[PlainVariable, PlainVariable]] = {}
        self._reduce: Callable[[Any], Any] = lambda logs: logs

    def agree(self, logs: Any, reduce: Callable[[Any], Any], agrees: tf.Tensor) -> Any:
        """Means of a step's logs over processes if `agrees` or none are kept; else the kept means.

        `logs` is a structure of tensors of fixed shapes, `reduce` takes its mean, and `agrees` is a
        scalar bool, the same on all processes.
        """
        flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(logs)]
        if not _size(flat):
            return logs
        self._reduce = reduce
        kept, last = self._variables_of(_size(flat))
        own = tf.concat([tf.reshape(tf.cast(value, tf.float32), [-1]) for value in flat], 0)
        last.assign(own)

        def agree():
            means = tf.concat([reduce(own), [1.0]], 0)
            kept.assign(means)
            return means

        means = tf.cond(agrees | tf.equal(kept.read()[-1], 0.0), agree, kept.read)
        return tf.nest.pack_sequence_as(logs, _split(means[:-1], flat))

    def agree_now(self, logs: Any) -> Any:
        """Means of the last step's logs over processes, from now on kept; outside of steps.

        `logs` is what `agree` returned.
        """
        flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(logs)]
        if _size(flat) not in self._variables:
            return logs
        kept, last = self._variables_of(_size(flat))
        means = self._reduce(last.read())
        kept.assign(tf.concat([means, [1.0]], 0))
        return tf.nest.pack_sequence_as(logs, _split(means, flat))

    def _variables_of(self, size):
        if size not in self._variables:
            self._variables[size] = (
                PlainVariable("kept_logs", np.zeros(size + 1, np.float32)),
                PlainVariable("last_logs", np.zeros(size, np.float32)),
            )
        return self._variables[size]


def _size(flat):
    return sum(value.shape.num_elements() for value in flat)


def _split(numbers, flat):
    """Returns tensors like `flat` of these numbers."""
    parts = tf.split(numbers, [value.shape.num_elements() for value in flat])
    return [tf.cast(tf.reshape(p, v.shape), v.dtype) for p, v in zip(parts, flat, strict=True)]
