"""Configures the buffers that bring batches to each device."""

import threading

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.distribute import input_lib
from tensorflow.python.ops import gen_dataset_ops

from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.strategies.strategies import is_own

_state = threading.local()


@patch(input_lib.DistributedDataset, "__iter__")
@patch(input_lib.DistributedDatasetsFromFunction, "__iter__")
def _note_own_iterator(stock, self):
    """Marks the buffers created below as buffers of our strategies."""
    previous = getattr(_state, "is_own", False)
    _state.is_own = is_own(self._strategy)
    try:
        return stock(self)
    finally:
        _state.is_own = previous


@patch(multi_device_iterator_ops.OwnedMultiDeviceIterator, "__init__")
def _outlived_by_dataset(stock, self, dataset=None, *args, **kwargs):
    """Keeps a data set until the iterator over it is destroyed.

    TensorFlow's iterator drops the data set before it waits for its thread, which may still ask for
    an element's types. Without the tuning below, iterators end quickly enough to crash.
    """
    previous, _state.datasets = getattr(_state, "datasets", None), []
    try:
        stock(self, dataset, *args, **kwargs)
        # The last attribute: Python releases attributes in order of assignment.
        self._terngrad_datasets = _state.datasets
    finally:
        _state.datasets = previous


@patch(gen_dataset_ops, "multi_device_iterator_init")
def _note_dataset(stock, dataset, *args, **kwargs):
    """Notes the data set that an iterator reads: the one given to the iterator, with options."""
    if getattr(_state, "datasets", None) is not None:
        _state.datasets.append(dataset)
    return stock(dataset, *args, **kwargs)


@patch(multi_device_iterator_ops, "_create_device_dataset")
def _without_tuning(stock, prototype_ds, *args):
    """Turns tf.data's autotuning off in the buffers that feed each device of our strategies.

    A buffer of one element needs none, but `fit` and `evaluate` would wait up to a minute for the
    sleeping tuning thread.
    """
    dataset = stock(prototype_ds, *args)
    if getattr(_state, "is_own", False):
        options = tf.data.Options()
        options.autotune.enabled = False
        dataset = dataset.with_options(options)
    return dataset
