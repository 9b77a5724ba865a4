"""Whether the processes of a cluster assign the same to weights that all of them share."""

from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.replicas.devices import (
    is_distributed,
    local_tensors,
)
from terngrad_tf.distribute.private.replicas.step_checks import assert_on_host

# Of a value's norm. Different processors round sums otherwise in the last of 7 digits.
_TOLERANCE = 1e-5


def agreed_by_processes(process_group: Any, value: Any, message: str) -> Any:
    """A value, once all processes have the same but for what processors round otherwise.

    Each sends the sum and the norm, 8 bytes. Nothing is done without a cluster, and where a value
    is no tensor, which programs that are the same bring alike.

    Args:
        process_group: `ProcessGroup` or None.
        value: tensor, or one a local replica, of which the first is compared.
        message: of the error with which the step fails.
    """
    first = local_tensors(value)[0]
    if process_group is None or not isinstance(first, tf.Tensor):
        return value
    numbers = tf.cast(first, tf.float64)
    size = tf.cast(tf.maximum(tf.size(first), 1), tf.float64)
    sums = tf.stack([tf.reduce_sum(numbers) / tf.sqrt(size), tf.norm(numbers)])
    of_processes = process_group.all_gather(tf.cast(sums, tf.float32))
    spread = tf.reduce_max(of_processes, 0) - tf.reduce_min(of_processes, 0)
    differs = spread > _TOLERANCE * tf.reduce_max(of_processes[:, 1])
    check = assert_on_host(tf.logical_not(tf.reduce_any(differs)), message)
    with tf.control_dependencies([] if check is None else [check]):
        if not is_distributed(value):
            return tf.identity(value)
        return type(value)([tf.identity(component) for component in value.values])
