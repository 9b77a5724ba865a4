"""Aggregates the values that replicas write to a variable.

As its `aggregation` states, all replicas take the mean weighted by examples, the sum, or the value
of the first process's first replica.

Other untrained variables have a copy per replica. Their mean is right for batch norm's statistics
and for equal values, but wrong for counts, maxima and queues.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import KerasVariable
from keras.src.backend.common.stateless_scope import in_stateless_scope
from tensorflow.python.distribute import values

from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.devices import local_tensors
from terngrad_tf.distribute.private.replicas.merging import merge
from terngrad_tf.distribute.private.replicas.padding import current_padding, share_of
from terngrad_tf.distribute.private.replicas.replica_data import differs

_ADVICE = (
    'make the variable with `aggregation=` "mean", "sum" or "only_first_replica", or write what'
    " `tf.distribute.get_replica_context().all_gather` returns"
)
# Names of batch norm's statistics: eager code does not show that they are means.
_KNOWN_MEANS = ("moving_", "renorm_")
# Types of the bits of small floats, by bytes.
_BITS = {1: tf.uint8, 2: tf.uint16}


def aggregate_writes(extended: Any, variable: Any) -> None:
    """Makes writes of replicas with uneven batches, and of processes, aggregate correctly.

    The variable states an `aggregation`, and a device's replicas share its copies.
    """
    update_replica, aggregation = variable._update_replica, variable.aggregation

    def update(update_fn, value, **kwargs):
        if not isinstance(value, tf.IndexedSlices):
            if aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
                value = _of_first_process(extended, value)
            else:
                value = _weighed(tf.convert_to_tensor(value, variable.dtype), aggregation)
        return update_replica(update_fn, value, **kwargs)

    variable._update_replica = update


def check_written(extended: Any, variable: Any, value: Any) -> None:
    """Refuses a value whose mean over replicas is wrong; in replica context.

    The variable has one copy per replica and no `aggregation`.

    Raises:
        ValueError: replicas may have different values that are no means over examples.
    """
    if tf.executing_eagerly() or extended._num_replicas_in_sync == 1:
        return
    but_for_means = variable.dtype.is_floating
    if differs(value, extended.process_group, but_for_means=but_for_means):
        raise ValueError(
            f"The variable {_name(variable)!r}, which is not trained, gets a value that differs"
            f" between replicas, and nothing says what all are to have: {_ADVICE}."
            f" Received: shape={tuple(variable.shape)}, aggregation='none'"
        )


@patch(keras.layers.RNN, "call")
def _refuse_states_of_examples(stock, self, *args, **kwargs):
    """Refuses a layer that keeps a state of each example: replicas have parts of a batch."""
    context = tf.distribute.get_replica_context()
    is_own = context is not None and isinstance(context.strategy.extended, LocalReplicas)
    if self.stateful and is_own and context.num_replicas_in_sync > 1:
        raise ValueError(
            "A recurrent layer with `stateful=True` keeps a state of each example of a batch, of"
            " which each replica has only a part. Use one replica, or hand states on with"
            f" `return_state=True` and `initial_state`. Received: layer={self.name!r},"
            f" num_replicas={context.num_replicas_in_sync}"
        )
    return stock(self, *args, **kwargs)


def warn_of_means(variables: Sequence[Any]) -> None:
    """Warns if copies that replicas wrote eagerly differ, before all take their mean."""
    names = [_name(v) for v in variables if _differ(local_tensors(v))]
    unknown = [n for n in names if not n.rpartition("/")[2].startswith(_KNOWN_MEANS)]
    if unknown:
        warnings.warn(
            f"Replicas that run eagerly wrote different values to {', '.join(unknown)}, which all"
            " replace by their mean. That is right for means over examples; of what is none,"
            f" {_ADVICE}",
            stacklevel=2,
        )


def _differ(copies):
    first, *others = (copy.numpy() for copy in copies)
    return not all(np.allclose(first, other) for other in others)


def _name(variable):
    return variable.name.removesuffix(":0")


def _weighed(value, aggregation):
    """Returns a replica's summand of the sum or the mean over all replicas."""
    padding = current_padding()
    if padding.is_empty is not None:
        value = tf.where(padding.is_empty, tf.zeros_like(value), value)
    if aggregation == tf.VariableAggregation.SUM:
        # A new tensor for each replica, even for equal values.
        return tf.identity(value)
    share = share_of(padding)
    if share is None:
        return value
    num_replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    return value * tf.cast(num_replicas * share, value.dtype)


def _of_first_process(extended, value):
    """Returns the first process's value, if the processes' values differ."""
    group = extended.process_group
    # Equal values, such as steps, need no exchange.
    if group is None or tf.executing_eagerly() or not differs(value, group):
        return value

    def of_first(strategy, value):
        first = local_tensors(value)[0]
        words = _words(first)
        flat = tf.reshape(words, [-1])
        flat = group.all_reduce_sum(flat if group.rank == 0 else tf.zeros_like(flat))
        words = tf.reshape(flat, tf.shape(words))
        return tf.ensure_shape(_of_words(words, first.dtype), first.shape)

    return merge(of_first, value)


def _words(value):
    """Returns a value's bits, or a small integer, as int32, which processes add exactly."""
    if value.dtype.size >= 4:
        return tf.bitcast(value, tf.int32)
    if value.dtype.is_floating:
        value = tf.bitcast(value, _BITS[value.dtype.size])
    return tf.cast(value, tf.int32)


def _of_words(words, dtype):
    """Inverse of `_words`."""
    if dtype.size >= 4:
        return tf.bitcast(words, dtype)
    if dtype.is_floating:
        return tf.bitcast(tf.cast(words, _BITS[dtype.size]), dtype)
    return tf.cast(words, dtype)


@patch(KerasVariable, "assign_add", "assign_sub")
def _add_changes(stock, self, value):
    """Adds up the changes that replicas make to a variable with the aggregation "sum".

    Keras assigns the changed value; the sum would contain the old value once per replica.
    """
    replica_context = tf.distribute.get_replica_context()
    if (
        self.aggregation != "sum"
        or replica_context is None
        or not isinstance(replica_context.strategy.extended, LocalReplicas)
        or in_stateless_scope()
        or isinstance(self.value, values.SyncOnReadVariable)
    ):
        return stock(self, value)
    change = tf.cast(value, self.value.dtype)
    return getattr(self.value, stock.__name__)(change).read_value()
