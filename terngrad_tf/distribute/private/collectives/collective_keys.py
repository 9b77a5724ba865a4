"""Keys of collectives on which processes agree even if they trace functions at different times.

All members must launch a collective under the same key. Stock TensorFlow feeds a new key to the
function in each call, which costs a round trip and does not reach a function inside
`tf.while_loop`, which Keras builds for `steps_per_execution > 1`. Here a key stands for a shape and
a place: the collective, the function that launches it, and how often it did before. A process that
traces a function again gets the same keys.
"""

import collections
import functools
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from terngrad_tf.distribute.private.collectives.traced_places import TracedPlaces, function_graph

# Keys of collectives outside of functions count from 100.
_FIRST_KEY = 2**30
_NUM_PLACES = 2**12
_NUM_SHAPES = 2**18
_PRIME = 100_003

# {graph of a function: number of launched collectives, by kind}.
_launched = weakref.WeakKeyDictionary()


class StaticKeys:
    """The keys of one process's collectives, shared by all its groups."""

    def __init__(self):
        self._places = {}

    def key(self, name: str, tensor: tf.Tensor) -> int:
        """Returns the key of a collective that the function under construction launches.

        An int, or an int32 scalar tensor if the shape is not known yet.
        """
        graph = function_graph()
        counts = _launched.setdefault(graph, collections.Counter())
        kind = (name, tensor.dtype.name, tensor.shape.rank)
        counts[kind] += 1
        place = (graph.name, *kind, counts[kind])
        number = self._places.setdefault(place, len(self._places))
        return _FIRST_KEY + number % _NUM_PLACES * _NUM_SHAPES + _shape_number(tensor)


def use_static_keys(
    launcher: Any, keys: StaticKeys, traced: TracedPlaces, check_sends: Callable[[], None]
) -> Any:
    """Makes a stock launcher of collectives, and all code that uses it, take `StaticKeys`.

    Args:
        launcher: TensorFlow's `CollectiveReplicaLauncher`.
        check_sends: called before each collective; may refuse it.
    """
    stock_key = launcher._next_instance_key
    current = []

    def named(name):
        stock = getattr(launcher, name)

        def launch(tensor, *args, **kwargs):
            check_sends()
            if context.executing_eagerly():
                return stock(tensor, *args, **kwargs)
            current.append(keys.key(name, tensor))
            try:
                return traced.launched(tensor, functools.partial(stock, tensor, *args, **kwargs))
            finally:
                current.pop()

        setattr(launcher, name, launch)

    launcher._use_unique_instance_key = lambda: False
    launcher._next_instance_key = lambda: current[-1] if current else stock_key()
    named("all_reduce")
    named("_all_gather")
    gather = launcher._all_gather
    launcher._all_gather = lambda tensor, *args, **kwargs: _gathered_unless_empty(
        tensor, launcher._group_size, lambda: gather(tensor, *args, **kwargs)
    )
    return launcher


def _gathered_unless_empty(tensor, size, gather):
    """Returns what `gather` would: TensorFlow ends a process that gathers tensors without elements.

    Rows are gathered if a step has `tf.IndexedSlices`, of which it may have none.
    """

    def nothing():
        return tf.repeat(tensor, size, axis=0)

    count = tensor.shape.num_elements()
    if count is None:
        return tf.cond(tf.equal(tf.size(tensor), 0), nothing, gather)
    return gather() if count else nothing()


def _shape_number(tensor):
    lengths = tensor.shape.as_list()
    if None in lengths:
        lengths = tf.unstack(tf.shape(tensor), num=tensor.shape.rank)
    number = 0
    for length in lengths:
        # Powers of 2 would have the same remainder.
        mixed = length % _NUM_SHAPES + _PRIME * (length // _NUM_SHAPES)
        number = (number * 31 + mixed) % _NUM_SHAPES
    return number
