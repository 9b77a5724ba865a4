"""Supports the `class_weight` of `fit` for data sets that are already distributed."""

from typing import Any

import tensorflow as tf
from keras.src.trainers.data_adapters import tf_dataset_adapter

from terngrad_tf.distribute.private.patches import patch

_SOURCE = "_terngrad_source"


def keep_source(distributed: Any, dataset: tf.data.Dataset, options: Any) -> None:
    """Notes the source of a distributed data set, and its options."""
    setattr(distributed, _SOURCE, (dataset, options))


@patch(tf_dataset_adapter.TFDatasetAdapter, "__init__")
def _weigh_before_distributing(stock, self, dataset, class_weight=None, distribution=None):
    """Adds class weights to the examples of a distributed data set.

    Keras would call `map`, which distributed data sets lack.
    """
    source = getattr(dataset, _SOURCE, None)
    if class_weight is not None and source is not None:
        examples, options = source
        weigh = tf_dataset_adapter.make_class_weight_map_fn(class_weight)
        weighted = examples.map(weigh).prefetch(tf.data.AUTOTUNE)
        dataset = dataset._strategy.experimental_distribute_dataset(weighted, options)
        class_weight = None
    stock(self, dataset, class_weight, distribution)
