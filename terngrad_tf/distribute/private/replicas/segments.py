"""Segments of a replica's function: a TensorFlow function, called once per replica."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.eager.polymorphic_function.attributes import XLA_COMPILE
from tensorflow.python.framework import (
    auto_control_deps,
    auto_control_deps_utils,
    func_graph,
    ops,
)
from tensorflow.python.ops import control_flow_ops, handle_data_util

from terngrad_tf.distribute.private.replicas.random_seeds import (
    choose_by_replica,
    continue_seeds,
    seeded_operations,
)

# The step's function is optimized as a whole.
_CONFIG = tf.compat.v1.ConfigProto()
_CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True

_LOOP = (
    "`jit_compile=True` must not be combined with a loop, such as a recurrent layer, that is"
    " differentiated after replicas exchange values, as BatchNormalization(synchronized=True) does:"
    " XLA cannot keep the loop's steps meanwhile. Use `jit_compile=False`."
)
# {id of a graph: its segment, not yet defined}.
open_segments = {}


class Segment:
    """A replica's computation between two `merge_call`s: one function, one call per replica."""

    def __init__(self, run: Any):
        self._run = run
        self._name = f"__segment_{ops.uid()}"
        self.graph = func_graph.FuncGraph(self._name)
        if run.jit_compile:
            # Loops then have the sizes that XLA needs.
            self.graph._set_control_flow_context(control_flow_ops.XLAControlFlowContext())
        continue_seeds(self.graph, run.outer)
        self.dependencies = auto_control_deps.AutomaticControlDependencies()
        self._calls = None
        self._positions = {}
        open_segments[id(self.graph)] = self

    def close(self) -> None:
        """Ends the trace. Calls with side effects are added to the outer graph now."""
        self.dependencies.__exit__(None, None, None)
        continue_seeds(self._run.outer, self.graph)
        replicas = self._run.replicas
        self._seeded = [] if replicas == [0] else seeded_operations(self.graph)
        if self._seeded:
            with self.graph.as_default():
                self._position = self._run.replica_id - replicas[0]
        self.graph.control_outputs.extend(self.dependencies.ops_which_must_run)
        if self.graph.control_outputs:
            self.calls()

    def calls(self) -> list[tf.Operation]:
        """Returns the operations that call the function, one per replica."""
        if self._calls is None:
            run = self._run
            # Without side effects, an unused call need not run.
            stateful = any(_has_side_effect(op) for op in self.graph.get_operations())
            attributes = {
                "f": tf.compat.v1.AttrValue(func=tf.compat.v1.NameAttrList(name=self._name)),
                "Tin": _types(t for t, _ in self.graph.captures),
                "Tout": _types([]),
                "config_proto": tf.compat.v1.AttrValue(s=_CONFIG.SerializeToString()),
                **self._compilation(),
            }
            self._calls = []
            with (
                ops.Graph.as_default(run.outer),
                tf.control_dependencies(None),
                tf.control_dependencies(run.control_inputs),
            ):
                for replica, device in enumerate(run.devices):
                    inputs = [run.tensor_of(t, replica) for t, _ in self.graph.captures]
                    with tf.device(device):
                        self._calls.append(
                            run.outer.create_op(
                                "StatefulPartitionedCall" if stateful else "PartitionedCall",
                                inputs,
                                [],
                                attrs=attributes,
                            )
                        )
        return self._calls

    def output(self, tensor: tf.Tensor, replica: int) -> tf.Tensor:
        """Returns the output of a replica's call for a tensor of the segment's graph."""
        for external, internal in self.graph.captures:
            if internal is tensor:
                return self._run.tensor_of(external, replica)
        if self._run.jit_compile and tensor.dtype == tf.variant:
            raise ValueError(_LOOP)
        if id(tensor) not in self._positions:
            self._positions[id(tensor)] = len(self.graph.outputs)
            self.graph.outputs.append(tensor)
            is_read = tensor.op.type in auto_control_deps_utils.RESOURCE_READ_OPS
            if is_read and tensor.op not in self.graph.control_outputs:
                # In an inlined call, a later write waits for this read only.
                self.graph.control_outputs.append(tensor.op)
            for call in self.calls():
                call._set_type_list_attr("Tout", self.graph.output_types)
                call._add_outputs([tensor.dtype.as_datatype_enum], [tensor.shape])
                handle_data_util.copy_handle_data(tensor, call.outputs[-1])
        return self.calls()[replica].outputs[self._positions[id(tensor)]]

    def define(self) -> None:
        """Defines the function, now that its outputs are known."""
        if self._calls is None:
            return
        # A call gives outputs at its end. Inline a single one, so that gradients leave early;
        # several make a large graph.
        several = len(self._calls) > 1
        attributes = {"_noinline": tf.compat.v1.AttrValue(b=several), **self._compilation()}
        function = atomic_function.from_func_graph(self._name, self.graph, attributes)
        if self._seeded:
            function = choose_by_replica(
                function, self.graph, self._seeded, self._position, self._run.replicas
            )
        self._run.outer._add_function_recursive(function)
        # Lets replicas read one variable at the same time.
        read_only = auto_control_deps_utils.get_read_only_resource_input_indices_graph(self.graph)
        for call in self._calls:
            call._set_func_attr("f", function.name)
            ops.set_int_list_attr(
                call, auto_control_deps_utils.READ_ONLY_RESOURCE_INPUTS_ATTR, read_only
            )

    def _compilation(self):
        """Attributes of the function and its calls that make XLA compile the function."""
        return {XLA_COMPILE: tf.compat.v1.AttrValue(b=True)} if self._run.jit_compile else {}


@contextlib.contextmanager
def using_first_replicas_tensors(graph: Any) -> Iterator[None]:
    """Lets operations of a graph around segments take the segments' tensors as inputs.

    A merge function may use its replica's tensors (`ExponentialMovingAverage` does): as in stock
    strategies, those of the first replica.
    """
    stock = graph.capture

    def capture(tensor, *args, **kwargs):
        segment = open_segments.get(id(getattr(tensor, "graph", None)))
        return stock(tensor, *args, **kwargs) if segment is None else segment.output(tensor, 0)

    graph.capture = capture
    try:
        yield
    finally:
        graph.capture = stock


def _types(tensors):
    types = [tensor.dtype.as_datatype_enum for tensor in tensors]
    return tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(type=types))


def _has_side_effect(op):
    return op._is_stateful and op.type not in auto_control_deps_utils.RESOURCE_READ_OPS
