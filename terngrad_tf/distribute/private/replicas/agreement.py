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
    is_exact = first.dtype.is_integer or first.dtype.is_bool
    if is_exact:
        # Sums that wrap around have no rounding, whatever their order.
        numbers = tf.cast(first, tf.int64)
        sums = tf.stack([tf.reduce_sum(numbers), tf.reduce_sum(numbers * numbers)])
    else:
        numbers = tf.cast(first, tf.float64)
        size = tf.cast(tf.maximum(tf.size(first), 1), tf.float64)
        sums = tf.stack([tf.reduce_sum(numbers) / tf.sqrt(size), tf.norm(numbers)])
    of_processes = process_group.all_gather(sums)
    agree = tf.reduce_all(of_processes == of_processes[0], 0)
    if not is_exact:
        spread = tf.reduce_max(of_processes, 0) - tf.reduce_min(of_processes, 0)
        agree |= spread <= _TOLERANCE * tf.reduce_min(of_processes[:, 1])
        agree |= tf.reduce_all(tf.math.is_nan(of_processes), 0)
    check = assert_on_host(tf.reduce_all(agree), message)
    with tf.control_dependencies([] if check is None else [check]):
        if not is_distributed(value):
            return tf.identity(value)
        return type(value)([tf.identity(component) for component in value.values])
