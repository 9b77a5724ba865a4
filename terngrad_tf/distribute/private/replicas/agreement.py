"""Checks that the processes of a cluster assign equal values to the weights that they share."""

from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.replicas.devices import (
    is_distributed,
    local_tensors,
)
from terngrad_tf.distribute.private.replicas.step_checks import assert_on_host

# Relative to the norm of floats. Processors may round the last of 7 digits differently.
_TOLERANCE = 1e-5


def agreed_by_processes(process_group: Any, value: Any, message: str) -> Any:
    """Returns a value after checking that it is equal on all processes, up to rounding.

    Each process sends the sum and the norm, 16 bytes. Python values are not checked: equal programs
    pass equal ones.

    Args:
        value: tensor, or a value with one tensor per local replica, whose first is compared.
        message: error message of the step.
    """
    first = local_tensors(value)[0]
    if process_group is None or not isinstance(first, tf.Tensor):
        return value
    numbers = tf.cast(first, tf.float64)
    size = tf.cast(tf.maximum(tf.size(first), 1), tf.float64)
    sums = tf.stack([tf.reduce_sum(numbers) / tf.sqrt(size), tf.norm(numbers)])
    of_processes = process_group.all_gather(sums)
    spread = tf.reduce_max(of_processes, 0) - tf.reduce_min(of_processes, 0)
    tolerance = _TOLERANCE if first.dtype.is_floating else 0.0
    is_close = spread <= tolerance * tf.reduce_min(of_processes[:, 1])
    # Of numbers that are not finite the spread is none.
    is_equal = tf.reduce_all(of_processes == of_processes[0], 0)
    is_nan = tf.reduce_all(tf.math.is_nan(of_processes), 0)
    check = assert_on_host(tf.reduce_all(is_close | is_equal | is_nan), message)
    with tf.control_dependencies([] if check is None else [check]):
        if not is_distributed(value):
            return tf.identity(value)
        return type(value)([tf.identity(component) for component in value.values])
