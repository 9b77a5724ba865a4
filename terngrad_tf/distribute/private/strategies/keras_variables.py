"""Lets Python read Keras' variables of one number, and checkpoints restore what steps make.

TensorFlow's distributed variables refuse `float` and `int`, such as of `optimizer.learning_rate`.
"""

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, values

from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.strategies.strategies import is_own


@patch(keras.Variable, "__float__", "__int__")
def _number(stock, self):
    """Reads a variable for `float` and `int`, which TensorFlow's distributed variables refuse."""
    if self.ndim > 0 or not _is_shared(self.value):
        return stock(self)
    return getattr(self.numpy(), stock.__name__)()


@patch(keras.Variable, "_restore_from_tensors")
def _restore_outside_replicas(stock, self, restored_tensors):
    """Restores all copies of a variable that a replica makes after `tf.train.Checkpoint.restore`.

    Such are the variables of an optimizer, or of a layer without an input's shape. Keras assigns
    the values as that replica would: other replicas do not, and a step would trace the assignment.
    """
    replica_context = tf.distribute.get_replica_context()
    if replica_context is None or not _is_shared(self.value):
        return stock(self, restored_tensors)
    with _outside_replicas(self.value.distribute_strategy):
        return stock(self, restored_tensors)


def _is_shared(value):
    return isinstance(value, values.DistributedVariable) and is_own(value.distribute_strategy)


@contextlib.contextmanager
def _outside_replicas(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Context of code that runs once for all replicas; `merge_call` would wait for the others."""
    distribute_lib._push_per_thread_mode(distribute_lib._CrossReplicaThreadMode(strategy))
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()
