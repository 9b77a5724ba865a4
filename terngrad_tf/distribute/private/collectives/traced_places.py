"""Notes the exchanges of functions in a user's training loop while they run.

Python code notes its place itself (see `places`). A function's graph keeps the notes in two
variables that another thread reads.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

from terngrad_tf.common.places import Traced, places
from terngrad_tf.distribute.private.collectives.stamps import run_independently

_MOST_NOTES = 64


class TracedPlaces:
    """Notes of the functions of this process.

    Successive collectives of one graph (a function or the body of a loop) count as one: their order
    is not fixed.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._names: list[str] = []
        self._runs: list[tuple[str, Any]] = []
        # {graph of a function: (graph in it that noted last, the note)}.
        self._last = weakref.WeakKeyDictionary()
        with tf.device(device):
            # Number of notes, then positions of the last notes' names, latest first.
            self._notes = tf.Variable(tf.zeros([1 + _MOST_NOTES], tf.int64), trainable=False)
            # Collectives under way, ended.
            self._under_way = tf.Variable(tf.zeros([2], tf.int64), trainable=False)

    @contextlib.contextmanager
    def run(self, function: Callable[..., Any]) -> Iterator[None]:
        """Context of `strategy.run` of a function."""
        name = getattr(function, "__name__", type(function).__name__)
        self._runs.append((name, function_graph()))
        try:
            yield
        finally:
            self._runs.pop()

    def launched(self, tensor: tf.Tensor, launch: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Adds a collective to the function under construction.

        `tensor` is this process's contribution.
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
        # Collectives must not wait for each other's counters.
        for op in (begin, end):
            run_independently(op)
        return result

    def read(self) -> Traced:
        """Returns the notes. Any thread may call this."""
        if not self._names:
            return Traced()
        with tf.init_scope():
            count, *last = self._notes.numpy().tolist()
            num_under_way, num_ended = self._under_way.numpy().tolist()
        names = [self._names[position] for position in reversed(last[: min(count, _MOST_NOTES)])]
        return Traced(count, names, num_ended, num_under_way > 0)

    def _name(self):
        """Returns the place of the function under construction, or None to leave it out."""
        if places.are_entered():
            return None
        graph = function_graph()
        if not self._runs:
            return f"a reduction of `{graph.name}`"
        name, graph_of_run = self._runs[-1]
        # None in functions for other threads, or before the first step.
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
    """Returns the notes of this process, created on the first call: it never leaves its cluster."""
    if not _places:
        _places.append(TracedPlaces(device))
        places.read_from(_places[0].read)
    return _places[0]


def function_graph() -> Any:
    """Returns the graph of the function under construction, outside of its loops and branches."""
    graph: Any = ops.get_default_graph()
    while getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph
    return graph
