"""Decides when the variables of a cluster's processes take the chief's initial values."""

import contextlib
import typing
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from terngrad_tf.distribute.steps.contexts import keras_loop
from terngrad_tf.distribute.steps.message_guard import MessageGuard


class InitialValues:
    """Variables that may still differ between the processes of a cluster.

    Stock strategies broadcast on creation; a variable that one process creates (Keras creates some
    while it saves) then waits forever. Here all take the chief's value when replicas first use the
    variable, which happens at the same place of the program:

    * In a traced function, when the trace ends, for all captured variables, before any step runs.
    * In eager code, at each variable's first use in a replica.

    Args:
        make_equal: gives a list of variables the chief's values. All processes call it with the
            same variables.
        message_guard: refuses the messages of a step.
    """

    def __init__(self, make_equal: Callable[[list[Any]], Any], message_guard: MessageGuard):
        self._make_equal = make_equal
        self._message_guard = message_guard
        self._own = weakref.WeakValueDictionary()
        self._in_eager_run = False

    def add(self, variable: Any) -> None:
        """Registers a new variable whose value is this process's own."""
        self._own[id(variable)] = variable
        stock = variable._get_replica

        def get_replica(replica_id):
            self.use(variable)
            return stock(replica_id)

        variable._get_replica = get_replica

    def may_differ(self, variable: Any) -> bool:
        """Returns True if a variable may still have a value of this process alone."""
        return id(variable) in self._own

    def are_equal(self, variables: Sequence[Any]) -> None:
        """Marks variables as equal on all processes; later uses do not change them."""
        for variable in variables:
            if self._own.pop(id(variable), None) is not None:
                del variable._get_replica

    def use(self, variable: Any) -> None:
        """Equalizes a variable at its first use. Called before replicas use it."""
        if self._in_eager_run and id(variable) in self._own:
            self._settle([variable])

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Context of the outermost call of a function on all replicas."""
        outer, eager = self._in_eager_run, context.executing_eagerly()
        self._in_eager_run = eager
        try:
            yield
        finally:
            self._in_eager_run = outer
        if eager:
            return
        captured = {}
        graph = typing.cast(typing.Any, ops.get_default_graph())  # graph of a function
        for handle, _ in graph.captures:
            variable = getattr(handle, "_distributed_container", lambda: None)()
            if isinstance(variable, values.DistributedVariable) and id(variable) in self._own:
                captured[id(variable)] = variable
        if captured:
            self._settle(list(captured.values()))

    def _settle(self, variables):
        # Before the step, not inside it.
        with tf.init_scope(), keras_loop(None), self._message_guard.refusing(None):
            self._make_equal(variables)
            self.are_equal(variables)
