"""What a `tf.data` pipeline reads, and in which order, found without reading far."""

import weakref
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import cache_op, shuffle_op
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.patches import patch

# Before these, a pipeline's first elements can be had at once, and as often as wished: a shuffle
# fills its buffer and goes on to another order, a cache wants to be read to its end.
_NOT_READ = (shuffle_op._ShuffleDataset, cache_op.CacheDataset)
_NUM_ELEMENTS = 16

# How often this process has begun to read a data set that begins with another order each time.
_num_iterations = weakref.WeakKeyDictionary()


def first_examples(dataset: tf.data.Dataset) -> dict[str, Any]:
    """The first elements of what a pipeline's shuffles and caches read; without them, its first.

    Args:
        dataset: `tf.data.Dataset` of batches.

    Returns:
        Dict with a "batch", or with "elements" of each place that is read, mostly single examples.
    """
    if not any(isinstance(stage, _NOT_READ) for stage in _stages(dataset)):
        for batch in dataset.take(1):
            return {"batch": batch}
    return {"elements": [list(s.take(_NUM_ELEMENTS)) for s in _sources(dataset)]}


def order_of(dataset: tf.data.Dataset) -> list[list[int]]:
    """Of each stage that draws random numbers its seeds, and how many orders were drawn."""
    return [
        [int(stage._seed), int(stage._seed2), _num_iterations.get(stage, 0)]
        for stage in _stages(dataset)
        if hasattr(stage, "_seed2")
    ]


@patch(tf.data.Dataset, "__iter__")
def _count_iterations(stock, self):
    """Notes that a process reads a data set, after which a shuffle goes on to its next order.

    If one process looks at a batch, its order is another one from then on. TensorFlow tells nobody
    at which order a shuffle is.
    """
    iterator = stock(self)
    if context.executing_eagerly():
        for stage in _stages(self):
            if getattr(stage, "_reshuffle_each_iteration", False):
                _num_iterations[stage] = _num_iterations.get(stage, 0) + 1
    return iterator


def _stages(dataset) -> Iterator[tf.data.Dataset]:
    """The data set and all from which it reads, each once."""
    seen, waiting = set(), [dataset]
    while waiting:
        stage = waiting.pop()
        if id(stage) not in seen:
            seen.add(id(stage))
            yield stage
            waiting.extend(stage._inputs())


def _sources(dataset):
    """Those among the stages that read no shuffle or cache, and whose readers do."""
    if not any(isinstance(stage, _NOT_READ) for stage in _stages(dataset)):
        return [dataset]
    return [source for stage in dataset._inputs() for source in _sources(stage)]
