"""Functions of this package that replicas call together."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def merge(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function once for all replicas, as `merge_call` does; in replica context.

    AutoGraph leaves it, and what it calls, as it is. In a step of one's own it would convert all of
    a reduction, which takes longer than the rest of the first step.

    Args:
        function: takes the strategy, and `args` as a value of all replicas each.
        *args: what this replica gives.

    Returns:
        This replica's part of what `function` returns.
    """
    unconverted = tf.autograph.experimental.do_not_convert(function)
    return tf.distribute.get_replica_context().merge_call(unconverted, args=args)
