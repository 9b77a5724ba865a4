"""Keys of collectives: processes that trace functions at different times agree on them.

All members of a collective must launch it under the same key. Stock TensorFlow takes a new key at
every call, fed to the function from outside. Such a key does not reach a function that is called
inside `tf.while_loop`, which is what Keras builds for `steps_per_execution > 1`, and each new one
costs a round trip. Here a key stands for a place in the program and a shape: what is launched, in
which function, and how often the function launched such a thing before. A process that has to trace
a function once more (its part of the last batch may be shorter) finds the same keys again.
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

# What each function's graph has launched so far.
_launched = weakref.WeakKeyDictionary()


class StaticKeys:
    """The keys of the collectives of one process, which all its groups share."""

    def __init__(self):
        self._places = {}

    def key(self, name: str, tensor: tf.Tensor) -> int:
        """Key of a collective that the function under construction launches.

        Args:
            name: what is launched.
            tensor: what this process brings.

        Returns:
            An int, or an int32 scalar tensor where the shape is not known yet.
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
    """Lets a stock launcher of collectives, and all that builds on it, take `StaticKeys`.

    Args:
        launcher: TensorFlow's `CollectiveReplicaLauncher`.
        keys: the keys of this process.
        traced: notes what is launched in functions.
        check_sends: called before each collective, to refuse it.
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
    return launcher


def _shape_number(tensor):
    lengths = tensor.shape.as_list()
    if None in lengths:
        lengths = tf.unstack(tf.shape(tensor), num=tensor.shape.rank)
    number = 0
    for length in lengths:
        # Lengths of large tensors are often powers of 2, which have the same remainder.
        mixed = length % _NUM_SHAPES + _PRIME * (length // _NUM_SHAPES)
        number = (number * 31 + mixed) % _NUM_SHAPES
    return number
