"""Finds the sources and the orders of a `tf.data` pipeline without reading far."""

import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import cache_op, flat_map_op, interleave_op, shuffle_op
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.patches import patch

# A shuffle would fill its buffer and advance to its next order; a cache must be read to its end.
_NOT_READ = (shuffle_op._ShuffleDataset, cache_op.CacheDataset)
_NUM_ELEMENTS = 16
# Their elements are mostly names of files.
_READ_FOR_EACH = (
    flat_map_op._FlatMapDataset,
    interleave_op._InterleaveDataset,
    interleave_op._ParallelInterleaveDataset,
)

# {data set with a new order in each iteration: number of iterations begun}.
_num_iterations = weakref.WeakKeyDictionary()


def first_examples(dataset: tf.data.Dataset) -> dict[str, Any]:
    """Returns the first elements before a pipeline's shuffles and caches, or its first batch.

    A dict with a "batch", or with "elements" of each source, mostly single examples.
    """
    if not any(isinstance(stage, _NOT_READ) for stage in _stages(dataset)):
        for batch in dataset.take(1):
            return {"batch": batch}
    return {"elements": [list(s.take(_NUM_ELEMENTS)) for s in _sources(dataset)]}


def reads_fewer_files(dataset: tf.data.Dataset, count: int) -> bool:
    """Returns True if a stage reads fewer than `count` files, which cannot be divided by files."""
    for stage in _stages(dataset):
        names = getattr(stage, "_filenames", None)
        if isinstance(stage, _READ_FOR_EACH):
            names = stage._input_dataset
        if isinstance(names, tf.data.Dataset) and 0 <= int(names.cardinality()) < count:
            return True
    return False


def order_of(dataset: tf.data.Dataset) -> list[list[int]]:
    """Returns the seeds and the number of drawn orders of each stage that draws random numbers."""
    return [
        [int(stage._seed), int(stage._seed2), _num_iterations.get(stage, 0)]
        for stage in _stages(dataset)
        if hasattr(stage, "_seed2")
    ]


@patch(tf.data.Dataset, "__iter__")
def _count_iterations(stock, self):
    """Counts how often a process iterates a data set: a shuffle then advances to its next order.

    TensorFlow does not report that the order of one process differs after an additional iteration.
    """
    iterator = stock(self)
    if context.executing_eagerly():
        for stage in _stages(self):
            if getattr(stage, "_reshuffle_each_iteration", False):
                _num_iterations[stage] = _num_iterations.get(stage, 0) + 1
    return iterator


def _stages(dataset) -> Iterator[tf.data.Dataset]:
    """Yields a data set and all data sets from which it reads, each once."""
    seen, waiting = set(), [dataset]
    while waiting:
        stage = waiting.pop()
        if id(stage) not in seen:
            seen.add(id(stage))
            yield stage
            waiting.extend(stage._inputs())


def _sources(dataset):
    """Returns the last stages before any shuffle or cache."""
    if not any(isinstance(stage, _NOT_READ) for stage in _stages(dataset)):
        return [dataset]
    return [source for stage in dataset._inputs() for source in _sources(stage)]
