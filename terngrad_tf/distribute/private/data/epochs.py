"""Divides the data of Keras' `fit`, `evaluate` and `predict` among a cluster's processes."""

import contextlib
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_tf_trainer
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import OrderedEnqueuer, PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from tensorflow.python.distribute import values

from terngrad_tf.distribute.private.data.agreed_seeds import states_of_generators
from terngrad_tf.distribute.private.data.shared_data import AutoShardPolicy, with_policy
from terngrad_tf.distribute.private.data.shuffled_arrays import shuffled_batches
from terngrad_tf.distribute.private.patches import patch

# Rows of arrays that processes compare.
_NUM_ROWS = 32
_ARRAYS_REMEDY = (
    "give the same arrays on all processes or, where each has examples of its own, a"
    " tf.data.Dataset with `options.experimental_distribute.auto_shard_policy` ="
    " tf.data.experimental.AutoShardPolicy.OFF"
)

_state = threading.local()


@patch(keras_tf_trainer.TFEpochIterator, "__init__")
def _read_together(stock, self, distribute_strategy=None, *args, **kwargs):
    """Makes the processes of a cluster agree on an epoch's data before reading.

    Keras makes a data set in each process, with its own order and length.
    """
    group = getattr(distribute_strategy.extended, "process_group", None)
    _state.first_batch = None
    with _reading(distribute_strategy if group is not None else None):
        stock(self, distribute_strategy, *args, **kwargs)
    self.first_batch, _state.first_batch = _state.first_batch, None


@patch(data_adapter_utils, "get_keras_tensor_spec")
def _note_first_batch(stock, batches):
    """Notes the first batch that an adapter of Python code reads to derive its specs.

    A batch read once more would change the numbers that this code draws, and its shuffles.
    """
    _state.first_batch = batches[0] if batches else None
    return stock(batches)


@patch(data_adapters, "get_data_adapter")
def _adapt_for_all(stock, x, *args, **kwargs):
    """Makes the adapter of this process's data work for all processes.

    `fit` has no argument for this.
    """
    adapter, strategy = stock(x, *args, **kwargs), getattr(_state, "strategy", None)
    if strategy is None:
        return adapter
    if not isinstance(adapter, TFDatasetAdapter):
        return ClusterAdapter(adapter, strategy)
    dataset = adapter.get_tf_dataset()
    if isinstance(dataset, tf.data.Dataset):
        # Its length counts batches of all processes together.
        return TFDatasetAdapter(strategy.experimental_distribute_dataset(dataset))
    return adapter


@contextlib.contextmanager
def _reading(strategy):
    previous, _state.strategy = getattr(_state, "strategy", None), strategy
    try:
        yield
    finally:
        _state.strategy = previous


class ClusterAdapter(DataAdapter):
    """Reads a process's part of the given arrays, or of the batches of Python code.

    * Arrays must be the same on all processes, which shuffle them in the same order.
    * Other sources: if the first batches are the same on all processes, each takes its part of
      every batch, otherwise all of its own. All go on until the process with most batches ends.

    All processes create an adapter.
    """

    def __init__(self, adapter: DataAdapter, strategy: tf.distribute.Strategy):
        self.stock = adapter
        self._strategy = strategy
        self._agreement = strategy.extended.feeding.agree(
            **_description(adapter),
            num_batches=adapter.num_batches,
            seed=secrets.randbits(31),
            states=states_of_generators(),
        )
        if isinstance(adapter, PyDatasetAdapter) and _draws_order(adapter):
            self.stock = AgreedOrderAdapter(adapter, self._agreed_generator())

    def get_tf_dataset(self) -> Any:
        """Returns this process's batches, distributed already if all are the process's own."""
        adapter, agreement = self.stock, self._agreement
        if agreement.is_own:
            return self._strategy.extended.distribute_own_batches(
                adapter.get_tf_dataset(), agreement
            )
        if isinstance(adapter, ArrayDataAdapter) and adapter._shuffle:
            # With equal seeds, Keras' own order is the same on all processes.
            if "tensorflow" not in agreement.shared:
                return with_policy(shuffled_batches(adapter, agreement.seed), AutoShardPolicy.DATA)
        return with_policy(adapter.get_tf_dataset(), AutoShardPolicy.DATA)

    @property
    def num_batches(self) -> int | None:
        return self._agreement.num_batches

    @property
    def batch_size(self) -> int | None:
        return self.stock.batch_size

    @property
    def has_partial_batch(self) -> bool | None:
        return self.stock.has_partial_batch

    @property
    def partial_batch_size(self) -> int | None:
        return self.stock.partial_batch_size

    def on_epoch_begin(self) -> None:
        self.stock.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.stock.on_epoch_end()

    def _agreed_generator(self):
        generator = random.Random(self._agreement.seed)
        if "python" in self._agreement.shared:
            # Continue the generator from which Keras would draw.
            generator.setstate(random.getstate())
        return generator


class AgreedOrderAdapter(PyDatasetAdapter):
    """Keras' adapter of a `PyDataset`, with an order from a separate generator.

    Processes may draw other numbers from Python's generator, which Keras uses. `generator` has the
    same state on all; Python's advances with it until the program draws from that.
    """

    def __init__(self, stock: PyDatasetAdapter, generator: random.Random):
        super().__init__(stock.py_dataset, stock.class_weight)
        self._output_signature = stock._output_signature
        self._generator = generator
        if self.enqueuer is not None:
            self.enqueuer = _AgreedOrderEnqueuer(self.py_dataset, self.agreed_order)

    def agreed_order(self) -> list[int]:
        """Returns the positions of all batches in a new order."""
        order = list(range(self.py_dataset.num_batches))
        continues_pythons = self._generator.getstate() == random.getstate()
        self._generator.shuffle(order)
        if continues_pythons:
            # The next `fit` begins where this one ends.
            random.setstate(self._generator.getstate())
        return order

    def _finite_generator(self):
        for place in self.agreed_order():
            yield self._standardize_batch(self.py_dataset[place])


class _AgreedOrderEnqueuer(OrderedEnqueuer):
    def __init__(self, py_dataset, order):
        super().__init__(
            py_dataset,
            py_dataset.workers,
            py_dataset.use_multiprocessing,
            py_dataset.max_queue_size,
        )
        self._order = order

    def _send_py_dataset(self):
        # Called in each epoch, after Keras' own order.
        self.indices = iter(self._order())
        super()._send_py_dataset()


@contextlib.contextmanager
def without_reading(adapter: DataAdapter) -> Iterator[Callable[[], None]]:
    """Lets epochs begin and end unread; gives a function that draws the order of such an epoch.

    Keras draws the order of a `PyDataset` at the first read or, if workers read it, when the epoch
    begins; what workers read in vain, the next epoch would get.
    """
    stock = adapter.stock if isinstance(adapter, ClusterAdapter) else adapter
    if not isinstance(stock, PyDatasetAdapter):
        yield lambda: None
        return
    owner: Any = stock
    enqueuer, owner.enqueuer = owner.enqueuer, None
    try:
        yield lambda: _draw_order(stock)
    finally:
        owner.enqueuer = enqueuer


def _draw_order(adapter):
    if isinstance(adapter, AgreedOrderAdapter):
        adapter.agreed_order()
    elif _draws_order(adapter):
        # As `PyDatasetAdapter._finite_generator` and `OrderedEnqueuer._run`.
        random.shuffle(list(range(adapter.num_batches)))


def _draws_order(adapter):
    # From Keras 3.16 on, the epoch's number gives the order, which is the same on all processes.
    return adapter.shuffle and adapter.num_batches and not hasattr(adapter, "_epoch")


def _description(adapter):
    """Returns the arguments of `feeding.agree` that describe the data."""
    if isinstance(adapter, ArrayDataAdapter):
        rows = _some_rows(adapter)
        return dict(kind="arrays", batch=rows, are_distorted=False, remedy=_ARRAYS_REMEDY)
    # Some adapters derive their specs only now.
    adapter.get_tf_dataset()
    batches = [] if _state.first_batch is None else [_state.first_batch]
    first = next(data_adapter_utils.get_numpy_iterator(batches), ())
    # PyTorch's batches are lists.
    first = tuple(first) if isinstance(first, list) else first
    return {"kind": type(adapter).__name__.removesuffix("Adapter"), "batch": first}


def _some_rows(adapter):
    """Returns rows spread over the arrays."""
    places = np.unique(np.linspace(0, adapter._num_samples - 1, _NUM_ROWS).astype(np.int64))

    def rows(array):
        return None if array is None else array.convert_to_numpy(array[places])

    return keras.tree.map_structure(rows, array_slicing.convert_to_sliceable(adapter._inputs))


def first_batch(iterator: keras_tf_trainer.TFEpochIterator, is_built: bool) -> Any:
    """Returns data for building a model without taking a batch from the data, or None.

    Generators cannot repeat a batch, and a shuffle advances to its next order.

    Args:
        iterator: the data.
        is_built: True if only losses and metrics are to be built, which need no lengths of axes.
    """
    first = vars(iterator).pop("first_batch", None)
    if first is not None:
        return first
    specs = tf.nest.map_structure(_spec_of_replica, iterator._distributed_dataset.element_spec)
    is_known = all(
        isinstance(spec, tf.TensorSpec)
        and (spec.shape[1:].is_fully_defined() or (is_built and spec.shape.rank is not None))
        for spec in tf.nest.flatten(specs)
    )
    return specs if is_known else None


def _spec_of_replica(spec):
    return spec._value_specs[0] if isinstance(spec, values.PerReplicaSpec) else spec
