"""Lets functions of a loop of the user's own note, while they run, where they exchange something.

What Python calls notes its place itself (see `places`). A function may hold a whole epoch, of which
Python sees nothing, so the graph counts: in two variables that another thread reads.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from terngrad_tf.distribute.private.collectives.stamps import run_independently
from terngrad_tf.places import Traced, places

# Notes that are kept.
_MOST_NOTES = 64


class TracedPlaces:
    """What the functions of this process noted.

    A note counts the collectives that a graph (a function, the body of a loop in it) launches in a
    row as one: their order in between is not fixed.

    Args:
        device: of the host.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._names: list[str] = []
        self._runs: list[tuple[str, Any]] = []
        # By the graph of a function: which graph in it noted last while it was traced, and how.
        self._last = weakref.WeakKeyDictionary()
        with tf.device(device):
            # The number of notes, and the last ones, latest first, by the positions of their names.
            self._notes = tf.Variable(tf.zeros([1 + _MOST_NOTES], tf.int64), trainable=False)
            # Collectives that have begun and not ended, and those that have ended.
            self._under_way = tf.Variable(tf.zeros([2], tf.int64), trainable=False)

    @contextlib.contextmanager
    def run(self, function: Callable[..., Any]) -> Iterator[None]:
        """Around `strategy.run` of a function."""
        name = getattr(function, "__name__", type(function).__name__)
        self._runs.append((name, function_graph()))
        try:
            yield
        finally:
            self._runs.pop()

    def launched(self, tensor: tf.Tensor, launch: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Adds a collective to the function under construction.

        Args:
            tensor: what this process brings.
            launch: function that does so, and returns the result.
        """
        name = self._name()
        if name is None:
            return launch()
        with tf.device(self._device), tf.control_dependencies([self._note(name), tensor]):
            begin = self._under_way.assign_add([1, 0], read_value=False)
        with tf.control_dependencies([begin]):
            result = launch()
        with tf.device(self._device), tf.control_dependencies([result]):
            end = self._under_way.assign_add([-1, 1], read_value=False)
        # No collective is to wait for another because of that.
        for op in (begin, end):
            run_independently(op)
        return result

    def read(self) -> Traced:
        """What was noted; by any thread."""
        if not self._names:
            return Traced()
        with tf.init_scope():
            count, *last = self._notes.numpy().tolist()
            num_under_way, num_ended = self._under_way.numpy().tolist()
        names = [self._names[position] for position in reversed(last[: min(count, _MOST_NOTES)])]
        return Traced(count, names, num_ended, num_under_way > 0)

    def _name(self):
        """Where the function under construction is; None where Python or nobody notes it."""
        if places.are_entered():
            return None
        graph = function_graph()
        if not self._runs:
            return f"a reduction of `{graph.name}`"
        name, graph_of_run = self._runs[-1]
        # Functions that a run makes for other threads, or calls before its first step.
        return f"`{name}` of `{graph.name}`" if graph is graph_of_run else None

    def _note(self, name):
        graph: Any = ops.get_default_graph()
        function = function_graph()
        last_graph, last_note = self._last.get(function, (None, None))
        if last_graph is not None and last_graph() is graph:
            return graph.get_operation_by_name(last_note)
        if name not in self._names:
            self._names.append(name)
        position = tf.constant([self._names.index(name)], tf.int64)
        before = self._notes.read_value()
        notes = tf.concat([before[:1] + 1, position, before[1:-1]], 0)
        note = self._notes.assign(notes, read_value=False)
        self._last[function] = weakref.ref(graph), note.name
        return note


_places: list[TracedPlaces] = []


def traced_places(device: str) -> TracedPlaces:
    """Those of this process, which is in one cluster for good; made at the first call."""
    if not _places:
        _places.append(TracedPlaces(device))
        places.read_from(_places[0].read)
    return _places[0]


def function_graph() -> Any:
    """The graph of the function under construction, around those of loops and branches in it."""
    graph: Any = ops.get_default_graph()
    while getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph
    return graph
