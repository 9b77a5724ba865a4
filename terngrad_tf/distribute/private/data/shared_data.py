"""Divides data sets among the processes of a cluster and keeps their reading in step."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.data.pipelines import (
    first_examples,
    order_of,
    reads_fewer_files,
)

AutoShardPolicy = tf.data.experimental.AutoShardPolicy

_REMEDY = (
    "set `options.experimental_distribute.auto_shard_policy` to"
    " tf.data.experimental.AutoShardPolicy.OFF if each process reads examples of its own, or to"
    " DATA if all read the same in the same order"
)


def policy_of(dataset: tf.data.Dataset) -> AutoShardPolicy:
    """Returns the `AutoShardPolicy` in a data set's options."""
    return dataset.options().experimental_distribute.auto_shard_policy


def with_policy(dataset: tf.data.Dataset, policy: AutoShardPolicy) -> tf.data.Dataset:
    """Returns the data set with an `AutoShardPolicy` in its options."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


class SharedData(LocalReplicas):
    """Distributes data sets for a cluster's `extended`.

    With `AutoShardPolicy.AUTO`, the default, TensorFlow assumes that all processes read the same
    and gives each a part; here they compare first examples. Other policies are not checked.

    All processes take part in steps as long as one has examples: they ask each other before every
    step, unless all data are infinite.

    Attributes:
        feeding: `feeding.Feeding`.
    """

    feeding: Any = None
    _split_batches: Callable[..., Any]

    def _experimental_distribute_dataset(self, dataset, options):
        distribute = super()._experimental_distribute_dataset
        if self.process_group is None or not context.executing_eagerly():
            return distribute(dataset, options)
        policy = policy_of(dataset)
        is_checked = policy == AutoShardPolicy.AUTO
        if is_checked and reads_fewer_files(dataset, self.process_group.size):
            policy = AutoShardPolicy.DATA
            dataset = with_policy(dataset, policy)
        if policy in (AutoShardPolicy.AUTO, AutoShardPolicy.DATA):
            dataset = _in_order(dataset)
        own = policy == AutoShardPolicy.OFF
        agreement = self.feeding.agree(
            f"tf.data.Dataset with AutoShardPolicy.{policy.name}",
            is_own=own,
            remedy=_REMEDY,
            order=[] if own else order_of(dataset),
            **(first_examples(dataset) if is_checked else {}),
            # TensorFlow divides a batch by all processes: own examples take several steps.
            **_length(dataset, None if own else 1),
        )
        return _reading_together(distribute(dataset, options), agreement)

    def _distribute_datasets_from_function(self, dataset_fn, options):
        distributed = super()._distribute_datasets_from_function(dataset_fn, options)
        if self.process_group is None or not context.executing_eagerly():
            return distributed
        (dataset,) = distributed._datasets
        # The local replicas take one batch each.
        length = _length(dataset, len(self._device_of_replica))
        agreement = self.feeding.agree("data sets from a function", is_own=True, **length)
        return _reading_together(distributed, agreement)

    def distribute_own_batches(self, dataset: tf.data.Dataset, agreement: Any) -> Any:
        """Shares every batch of a data set among this process's replicas only."""
        dataset = with_policy(dataset, AutoShardPolicy.OFF)
        own = tf.distribute.InputContext(1, 0, len(self._devices))
        return _reading_together(self._split_batches(dataset, None, own), agreement)


def _in_order(dataset):
    """Returns the data set with elements in an order independent of timing."""
    if dataset.options().deterministic is not False:
        return dataset
    options = tf.data.Options()
    options.deterministic = True
    return dataset.with_options(options)


def _length(dataset, batches_of_step):
    """Returns the arguments of `feeding.agree` on a data set's length."""
    cardinality = int(dataset.cardinality())
    num_batches = None
    if cardinality >= 0 and batches_of_step is not None:
        num_batches = -(-cardinality // batches_of_step)
    is_infinite = cardinality == tf.data.INFINITE_CARDINALITY
    return {"num_batches": num_batches, "is_infinite": is_infinite}


def _reading_together(distributed, agreement):
    # True: TensorFlow asks the other processes for data before each step.
    distributed._enable_get_next_as_optional = not agreement.is_infinite
    if agreement.is_infinite:
        distributed._cardinality = tf.data.INFINITE_CARDINALITY
    elif agreement.num_batches is None:
        distributed._cardinality = tf.data.UNKNOWN_CARDINALITY
    else:
        distributed._cardinality = agreement.num_batches
    return distributed
