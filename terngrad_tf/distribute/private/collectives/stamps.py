"""What runs beside a step's other side effects, and the time at which tensors of a step exist."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops


def run_independently(op: tf.Operation) -> None:
    """Lets an operation of the graph under construction run when its inputs exist.

    Functions run operations with side effects one after another, as they were traced.
    """
    dependencies = ops.get_default_graph().experimental_acd_manager
    if dependencies is not None:
        dependencies.run_independently(op)


def stamped(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
    """When tensors exist, and the tensors, which what follows gets no earlier.

    Without that order a step's threads might look at the clock when they are done with what
    follows.

    Args:
        tensors: list of tensors.

    Returns:
        Pair of the seconds, a float64 scalar tensor of the clock that `tf.timestamp` reads, and the
        list of tensors.
    """
    with tf.device("CPU:0"):
        if context.executing_eagerly():
            return tf.timestamp(), tensors
        # A function's call that is made part of the step ends, for control dependencies, with its
        # side effects; what takes its outputs waits for these.
        existing = [_identity(t) for t in tensors]
        with tf.control_dependencies(existing):
            now = tf.timestamp()
    run_independently(now.op)
    with tf.control_dependencies([now]):
        return now, [_identity(t) for t in existing]


def _identity(tensor):
    with tf.device(tensor.device):
        return tf.identity(tensor)
