"""Functions of this package that replicas call together."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def merge(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function once for all replicas, like `merge_call`; in replica context.

    AutoGraph skips the function and its callees: converting them takes longer than the rest of the
    first step.

    Args:
        function: takes the strategy, and each of `args` as a value of all replicas.
        *args: this replica's values.

    Returns:
        This replica's part of the result.
    """
    unconverted = tf.autograph.experimental.do_not_convert(function)
    return tf.distribute.get_replica_context().merge_call(unconverted, args=args)
