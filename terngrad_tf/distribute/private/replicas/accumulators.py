"""Sums to which each replica adds separately, saved and restored as their total."""

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.replicas.devices import local_tensors


def stand_for_total(
    strategy: tf.distribute.Strategy, variable: Any, is_gathered: Callable[[], bool]
) -> None:
    """Makes a variable with one copy per replica stand for the sum of its copies outside replicas.

    A saved sum can be restored with any number of replicas, and without a strategy. A value
    assigned outside replicas goes to the first replica; the other copies become zero. Outside
    replicas, each process sees the sum of its own.

    TensorFlow's variables summed on read would divide assigned values among replicas, and exchange
    them when one process reads.

    Args:
        variable: made in `strategy.extended.sums_of_replicas()`.
        is_gathered: True if the first process holds the sum of all; called in eager code of a
            cluster.
    """
    stock, own = variable.assign, weakref.ref(variable)

    def total():
        in_cluster = strategy.extended.process_group is not None
        if in_cluster and tf.executing_eagerly() and not is_gathered():
            warnings.warn(
                "The gradients accumulated since the last update are saved without those of the"
                " other processes, which `fit` gathers at the end of an epoch. Save there, or after"
                " a step that updates",
                stacklevel=2,
            )
        return _sum_of_copies(own())

    def assign(value, *args, **kwargs):
        replica_context = tf.distribute.get_replica_context()
        if replica_context is not None and replica_context.strategy is strategy:
            return stock(value, *args, **kwargs)
        first = strategy.extended._get_replica_id_in_sync_group(0)
        value = tf.convert_to_tensor(value, own().dtype)
        for replica, copy in enumerate(local_tensors(own()), first):
            copy.assign(tf.zeros_like(value) if replica else value)
        return own()

    variable._get_cross_replica = total
    variable.assign = assign
    # `tf.train.Checkpoint` saves a `keras.Variable` by these; the stock ones take the first copy.
    variable._serialize_to_tensors = lambda: {"VARIABLE_VALUE": total()}
    variable._restore_from_tensors = lambda restored: assign(restored["VARIABLE_VALUE"])


def updating_optimizers(optimizer: Any) -> list[Any]:
    """Returns the optimizers that update weights: an optimizer itself, or those that it holds.

    `LossScaleOptimizer` holds one, `MultiOptimizer` several; there are none in None.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return [] if optimizer is None else list(getattr(optimizer, "optimizers", [optimizer]))


def accumulators_of(optimizer: Any) -> list[Any]:
    """Returns the variables of a Keras optimizer to which each replica adds; mostly an empty list.

    Keras has no public name for them.
    """
    parts = updating_optimizers(optimizer)
    return [v for part in parts for v in getattr(part, "_accumulated_gradients", None) or ()]


def gather_totals(strategy: tf.distribute.Strategy, variables: Sequence[Any]) -> None:
    """Moves the sums of all processes to the first one; every process of a cluster calls this.

    The variables stand for their total.
    """
    for variable in variables:
        precision = tf.float64 if variable.dtype == tf.float64 else tf.float32
        total = tf.cast(tf.reshape(_sum_of_copies(variable), [-1]), precision)
        total = strategy.extended.process_group.all_reduce_sum(total)
        variable.assign(tf.cast(tf.reshape(total, variable.shape), variable.dtype))


def _sum_of_copies(variable):
    return tf.add_n([copy.read_value() for copy in local_tensors(variable)])
