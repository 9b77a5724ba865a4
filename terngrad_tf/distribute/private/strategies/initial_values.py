"""When the variables of a cluster's processes take the chief's initial values."""

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

    Stock strategies broadcast a variable when it is created, so that one which a single process
    makes (Keras makes some while it saves) waits for the others for ever. Here each process begins
    with an initial value of its own. All take the chief's when replicas first use the variable:
    then all processes are at the same place of the same program.

    * Traced, that is when the trace of the replicas' function ends: whatever its graph captured.
      Every step runs after that.
    * Eagerly, it is each variable's first use in a replica.

    Args:
        make_equal: function of a list of variables, called on all processes with the same ones,
            that gives them the chief's values.
        message_guard: refuses the messages of a step.
    """

    def __init__(self, make_equal: Callable[[list[Any]], Any], message_guard: MessageGuard):
        self._make_equal = make_equal
        self._message_guard = message_guard
        self._own = weakref.WeakValueDictionary()
        self._in_eager_run = False

    def add(self, variable: Any) -> None:
        """Notes a new variable with a value of this process's own."""
        self._own[id(variable)] = variable
        stock = variable._get_replica

        def get_replica(replica_id):
            self.use(variable)
            return stock(replica_id)

        variable._get_replica = get_replica

    def may_differ(self, variable: Any) -> bool:
        """Whether a variable still has a value of this process's own."""
        return id(variable) in self._own

    def are_equal(self, variables: Sequence[Any]) -> None:
        """Notes that all processes gave these the same value; they are left alone from now on."""
        for variable in variables:
            if self._own.pop(id(variable), None) is not None:
                del variable._get_replica

    def use(self, variable: Any) -> None:
        """Called where replicas are about to use a variable."""
        if self._in_eager_run and id(variable) in self._own:
            self._settle([variable])

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Around the outermost call of a function on all replicas."""
        outer, eager = self._in_eager_run, context.executing_eagerly()
        self._in_eager_run = eager
        try:
            yield
        finally:
            self._in_eager_run = outer
        if eager:
            return
        captured = {}
        graph = typing.cast(typing.Any, ops.get_default_graph())  # of a function
        for handle, _ in graph.captures:
            variable = getattr(handle, "_distributed_container", lambda: None)()
            if isinstance(variable, values.DistributedVariable) and id(variable) in self._own:
                captured[id(variable)] = variable
        if captured:
            self._settle(list(captured.values()))

    def _settle(self, variables):
        # Before the step, not as a part of it.
        with tf.init_scope(), keras_loop(None), self._message_guard.refusing(None):
            self._make_equal(variables)
            self.are_equal(variables)
