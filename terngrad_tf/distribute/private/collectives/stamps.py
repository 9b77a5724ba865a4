"""Runs operations independently of a step's side effects, and timestamps a step's tensors."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops


def run_independently(op: tf.Operation) -> None:
    """Lets an operation of the graph under construction run as soon as its inputs exist.

    By default, functions run operations with side effects one after another, as traced.
    """
    dependencies = ops.get_default_graph().experimental_acd_manager
    if dependencies is not None:
        dependencies.run_independently(op)


def stamped(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
    """Returns the time at which tensors exist, and the tensors for later use.

    Later operations get the tensors only after the timestamp. Otherwise a step's threads might read
    the clock after these operations.

    Args:
        tensors: list of tensors.

    Returns:
        Pair of the seconds, a float64 scalar tensor from the clock of `tf.timestamp`, and the list
        of tensors.
    """
    with tf.device("CPU:0"):
        if context.executing_eagerly():
            return tf.timestamp(), tensors
        # If a function's call is inlined into the step, control dependencies on the call wait for
        # its side effects. Users of its outputs wait for these identities.
        existing = [_identity(t) for t in tensors]
        with tf.control_dependencies(existing):
            now = tf.timestamp()
    run_independently(now.op)
    with tf.control_dependencies([now]):
        return now, [_identity(t) for t in existing]


def _identity(tensor):
    with tf.device(tensor.device):
        return tf.identity(tensor)
