"""Runs operations independently of a step's side effects, and timestamps a step's tensors."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops


def run_independently(op: tf.Operation) -> None:
    """Lets an operation of the graph under construction run as soon as its inputs exist.

    By default, functions run operations with side effects in traced order.
    """
    dependencies = ops.get_default_graph().experimental_acd_manager
    if dependencies is not None:
        dependencies.run_independently(op)


def stamped(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
    """Returns the time at which tensors exist, and the tensors for later use.

    The time is a float64 scalar tensor, as by `tf.timestamp`. Later operations get the tensors
    after the timestamp, or a thread might read the clock late.
    """
    with tf.device("CPU:0"):
        if context.executing_eagerly():
            return tf.timestamp(), tensors
        # Not on `tensors`: on an inlined function call, a dependency waits for its side effects.
        existing = [_identity(t) for t in tensors]
        with tf.control_dependencies(existing):
            now = tf.timestamp()
    run_independently(now.op)
    with tf.control_dependencies([now]):
        return now, [_identity(t) for t in existing]


def _identity(tensor):
    with tf.device(tensor.device):
        return tf.identity(tensor)
