"""What callbacks are told of steps in which processes exchange nothing."""

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_numbers = itertools.count()


class KeptLogs:
    """Keeps the logs of the last step in which processes agreed on them.

    Callbacks that stop training by a log must do so on all processes in the same step.
    """

    def __init__(self) -> None:
        self._handles: dict[int, tf.Tensor] = {}

    def agree(self, logs: Any, reduce: Callable[[Any], Any], agrees: tf.Tensor) -> Any:
        """Means of this step's logs, or those kept.

        Args:
            logs: structure of tensors of fixed shapes, this process's.
            reduce: function of such a structure to its mean over processes.
            agrees: scalar bool, whether means are taken in this step; the same on all processes. In
                the first step they are in any case.

        Returns:
            Structure like `logs`, the same on all processes.
        """
        flat = [tf.convert_to_tensor(value) for value in tf.nest.flatten(logs)]
        sizes = [value.shape.num_elements() for value in flat]
        if not sizes:
            return logs
        handle = self._handle(sum(sizes))

        def read():
            return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        def agree():
            means = tf.nest.flatten(reduce(flat))
            parts = [tf.reshape(tf.cast(mean, tf.float32), [-1]) for mean in means]
            kept = tf.concat([*parts, [1.0]], 0)
            tf.raw_ops.AssignVariableOp(resource=handle, value=kept)
            return kept

        kept = tf.cond(agrees | tf.equal(read()[-1], 0.0), agree, read)
        parts = tf.split(kept[:-1], sizes)
        means = [tf.cast(tf.reshape(p, v.shape), v.dtype) for p, v in zip(parts, flat, strict=True)]
        return tf.nest.pack_sequence_as(logs, means)

    def _handle(self, size):
        """A variable for so many numbers, and one that tells whether there are any yet."""
        if size not in self._handles:
            with tf.init_scope(), tf.device("CPU:0"):
                # Below `tf.Variable`, of which a strategy would make a mirrored one.
                self._handles[size] = tf.raw_ops.VarHandleOp(
                    dtype=tf.float32,
                    shape=[size + 1],
                    shared_name=f"terngrad_tf/kept_logs_{next(_numbers)}",
                )
                tf.raw_ops.AssignVariableOp(
                    resource=self._handles[size], value=tf.zeros([size + 1])
                )
        return self._handles[size]
