"""How the processes of a cluster share data sets: who reads what, and that all read on together."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.data.pipelines import first_examples, order_of

AutoShardPolicy = tf.data.experimental.AutoShardPolicy

_REMEDY = (
    "set `options.experimental_distribute.auto_shard_policy` to"
    " tf.data.experimental.AutoShardPolicy.OFF if each process reads examples of its own, or to"
    " DATA if all read the same in the same order"
)


def policy_of(dataset: tf.data.Dataset) -> AutoShardPolicy:
    """How processes share a data set, as its options say."""
    return dataset.options().experimental_distribute.auto_shard_policy


def with_policy(dataset: tf.data.Dataset, policy: AutoShardPolicy) -> tf.data.Dataset:
    """The data set with options that say how processes share it."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


class SharedData(LocalReplicas):
    """What a cluster's `extended` knows of data sets.

    With `AutoShardPolicy.AUTO`, a data set's default, TensorFlow gives each process its part of the
    files or batches, and takes it for granted that all processes read the same. Here they compare
    their first examples. The other policies are what the user says.

    As long as one process has examples, all take part in steps: each asks the others before every
    step, unless the data of all are infinite.

    Attributes:
        feeding: `feeding.Feeding` of the strategy.
    """

    feeding: Any = None
    _split_batches: Callable[..., Any]

    def _experimental_distribute_dataset(self, dataset, options):
        distribute = super()._experimental_distribute_dataset
        if self.process_group is None or not context.executing_eagerly():
            return distribute(dataset, options)
        policy = policy_of(dataset)
        if policy in (AutoShardPolicy.AUTO, AutoShardPolicy.DATA):
            dataset = _in_order(dataset)
        own = policy == AutoShardPolicy.OFF
        agreement = self.feeding.agree(
            f"tf.data.Dataset with AutoShardPolicy.{policy.name}",
            is_own=own,
            remedy=_REMEDY,
            order=[] if own else order_of(dataset),
            **(first_examples(dataset) if policy == AutoShardPolicy.AUTO else {}),
            # A batch is that of all processes, so each takes several steps with one of its own.
            **_length(dataset, None if own else 1),
        )
        return _reading_together(distribute(dataset, options), agreement)

    def _distribute_datasets_from_function(self, dataset_fn, options):
        distributed = super()._distribute_datasets_from_function(dataset_fn, options)
        if self.process_group is None or not context.executing_eagerly():
            return distributed
        (dataset,) = distributed._datasets
        # Each local replica takes a batch in turn.
        length = _length(dataset, len(self._device_of_replica))
        agreement = self.feeding.agree("data sets from a function", is_own=True, **length)
        return _reading_together(distributed, agreement)

    def distribute_own_batches(self, dataset: tf.data.Dataset, agreement: Any) -> Any:
        """This process's replicas share every batch of a data set of its own.

        Args:
            dataset: `tf.data.Dataset` of batches.
            agreement: `feeding.Agreement` on it.
        """
        dataset = with_policy(dataset, AutoShardPolicy.OFF)
        own = tf.distribute.InputContext(1, 0, len(self._devices))
        return _reading_together(self._split_batches(dataset, None, own), agreement)


def _in_order(dataset):
    """The data set with elements in an order that does not depend on time."""
    if dataset.options().deterministic is not False:
        return dataset
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options)


def _length(dataset, batches_of_step):
    """What `feeding.agree` is told of a data set's length; its batches make up steps, or parts."""
    cardinality = int(dataset.cardinality())
    num_batches = None
    if cardinality >= 0 and batches_of_step is not None:
        num_batches = -(-cardinality // batches_of_step)
    is_infinite = cardinality == tf.data.INFINITE_CARDINALITY
    return {"num_batches": num_batches, "is_infinite": is_infinite}


def _reading_together(distributed, agreement):
    # TensorFlow decides by what this process knows whether it asks the others before each step.
    distributed._enable_get_next_as_optional = not agreement.is_infinite
    if agreement.is_infinite:
        distributed._cardinality = tf.data.INFINITE_CARDINALITY
    elif agreement.num_batches is None:
        distributed._cardinality = tf.data.UNKNOWN_CARDINALITY
    else:
        distributed._cardinality = agreement.num_batches
    return distributed
