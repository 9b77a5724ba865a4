"""Many replicas on one device: their function is traced once and called once for each.

`tf.distribute` traces a replica's function once for every replica, each on a device of its own with
a copy of every variable. Here all replicas of a process share one trace and, on one device, one
copy of the weights:

* The function runs in Python once, as replica 0, and is cut into segments where replicas meet
  (`merge_call`: reductions, updates). What lies between two meetings becomes one TensorFlow
  function.
* Each segment is called once for every replica, with that replica's examples, number and own
  variables (metrics, batch-norm statistics, random states) in place of replica 0's.
* At a meeting, what the calls returned is grouped by replica and given to the merge function, as
  `tf.distribute` would.

A later segment may use any tensor of an earlier one (the backward pass of synchronized batch norm
does), which is then added to the outputs of the earlier calls. So functions are only defined when
the last segment is known.

Python code that asks for the number of its replica gets a tensor. What it does beyond tensors
(printing, appending to a list) happens once, not once a replica.
"""

import contextlib

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.distribute import distribute_lib, distribute_utils, values
from tensorflow.python.eager import record
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import (
    auto_control_deps,
    auto_control_deps_utils,
    func_graph,
    ops,
)
from tensorflow.python.ops import handle_data_util, resource_variable_ops

# The step's own function is optimized as a whole; its parts need not be once more.
_CONFIG = tf.compat.v1.ConfigProto()
_CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True

# Segments whose function is not defined yet, by the id of their graph.
_open_segments = {}

# Replicas' own tensors, by the id of the tensor that stands for them. Runs within a merge function
# use those of the run that they are part of.
_own_tensors = {}


def call_for_each_replica(strategy, function, args, kwargs):
    """Adds `function` to the graph under construction, once for every local replica.

    Args:
        strategy: the strategy; its `extended.worker_devices` has one entry a local replica.
        function: Python function to run in replica context.
        args: its arguments; per-replica values stand for one value a replica.
        kwargs: its keyword arguments.

    Returns:
        What the function returned, per-replica where it differs between replicas.
    """
    return _Run(strategy).call(function, args, kwargs)


def needs_own_traces(structure):
    """Whether per-replica values hold Python or NumPy values that differ between the replicas.

    What a function does with them may differ too, so each replica has to be traced.
    """
    return any(
        isinstance(value, values.DistributedValues)
        and not isinstance(value, values.DistributedVariable)
        and not all(_is_tensor(v) for v in value.values)
        and not _are_same(value.values)
        for value in tf.nest.flatten(structure)
    )


class _Run:
    """One call of a function on all local replicas."""

    def __init__(self, strategy):
        self.strategy = strategy
        self.devices = strategy.extended.worker_devices
        self.outer = ops.get_default_graph()
        self._keys = []
        self._segments = []
        self._contexts = None

    def call(self, function, args, kwargs):
        extended = self.strategy.extended
        first = extended._get_replica_id_in_sync_group(0)
        self.replica_ids = [tf.constant(first + w) for w in range(len(self.devices))]
        self.replica_id = self._key(self.replica_ids)
        try:
            with contextlib.ExitStack() as self._contexts:
                args, kwargs = self._for_first_replica((args, kwargs))
                self._begin_segment()
                self._contexts.enter_context(_ReplicaContext(self, first))
                result = function(*args, **kwargs)
                result = tf.nest.map_structure(_as_tensor, result)
                self._segments[-1].close()
            result = self._for_all_replicas(result)
            for segment in self._segments:
                segment.define()
            return result
        finally:
            for segment in self._segments:
                del _open_segments[id(segment.graph)]
            for key in self._keys:
                del _own_tensors[id(key)]

    def merge(self, function, args, kwargs):
        """Ends a segment, runs `function` for all replicas together, begins the next segment."""
        if ops.get_default_graph() is not self._segments[-1].graph:
            raise RuntimeError(
                "`merge_call` (a reduction, or an optimizer's update) must not be called inside a"
                " nested `tf.function`, `tf.cond` or `tf.while_loop`."
            )
        args, kwargs = tf.nest.map_structure(_as_tensor, (args, kwargs))
        self._segments[-1].close()
        # Not `self.outer.as_default()`, which would hand on the state of the segment's graph.
        with ops.Graph.as_default(self.outer), record.stop_recording():
            args, kwargs = self._for_all_replicas((args, kwargs))
            merged = function(self.strategy, *args, **kwargs)
            merged = self._for_first_replica(merged)
        self._begin_segment()
        return merged

    def tensor_of(self, tensor, replica):
        """What stands for a tensor of replica 0, from outside or from a segment, on a replica."""
        if id(tensor) in _own_tensors:
            return _own_tensors[id(tensor)][replica]
        if isinstance(tensor, ops.EagerTensor):
            container = getattr(tensor, "_distributed_container", lambda: None)()
            return tensor if container is None else container.values[replica].handle
        segment = _open_segments.get(id(tensor.graph))
        return tensor if segment is None else segment.output(tensor, replica)

    def _begin_segment(self):
        with ops.Graph.as_default(self.outer):
            segment = _Segment(self)
        self._segments.append(segment)
        self._contexts.enter_context(segment.graph.as_default())
        segment.dependencies.__enter__()

    def _key(self, tensors):
        """Remembers a replica's own tensors; the result stands for them in a segment."""
        first = tensors[0]
        shape = tf.TensorShape(None)
        if all(t.shape.rank == first.shape.rank for t in tensors):
            shape = first.shape
            for tensor in tensors[1:]:
                shape = shape.most_specific_compatible_shape(tensor.shape)
        if shape.rank != first.shape.rank or shape.as_list() != first.shape.as_list():
            first = tf.compat.v1.placeholder_with_default(first, shape)
        elif id(first) in _own_tensors or isinstance(first, ops.EagerTensor):
            first = tf.identity(first)
        _own_tensors[id(first)] = [first, *tensors[1:]]
        self._keys.append(first)
        return first

    def _for_first_replica(self, structure):
        """Replaces per-replica values by those of replica 0."""

        def of_first(value):
            if isinstance(value, values.DistributedVariable) or not isinstance(
                value, values.DistributedValues
            ):
                return value
            if _are_same(value.values):
                return value.values[0]
            # What a merge function returned; differing arguments have traces of their own.
            parts = [v if _is_tensor(v) else tf.convert_to_tensor(v) for v in value.values]
            flat = [tf.nest.flatten(v, expand_composites=True) for v in parts]
            keys = [self._key(list(tensors)) for tensors in zip(*flat, strict=True)]
            return tf.nest.pack_sequence_as(parts[0], keys, expand_composites=True)

        return tf.nest.map_structure(of_first, structure)

    def _for_all_replicas(self, structure):
        """Groups what replica 0 has with what the others have."""

        def of(value, replica):
            if isinstance(value, tf.Operation):
                segment = _open_segments.get(id(value.graph))
                return segment.calls()[replica] if segment else value
            if not _is_tensor(value):
                return value
            return tf.nest.map_structure(
                lambda t: self.tensor_of(t, replica), value, expand_composites=True
            )

        def same_if_equal(parts):
            # A composite tensor is known to be the same for all replicas by its components.
            flat = [tf.nest.flatten(part, expand_composites=True) for part in parts]
            same = all(a is b for other in flat[1:] for a, b in zip(flat[0], other, strict=True))
            return [parts[0]] * len(parts) if same else parts

        by_value = [
            same_if_equal([of(value, replica) for replica in range(len(self.devices))])
            for value in tf.nest.flatten(structure)
        ]
        return distribute_utils.regroup(
            tuple(
                tf.nest.pack_sequence_as(structure, [parts[replica] for parts in by_value])
                for replica in range(len(self.devices))
            )
        )


class _Segment:
    """What a replica computes between two meetings: one function, one call a replica."""

    def __init__(self, run):
        self._run = run
        self._name = f"__segment_{ops.uid()}"
        self.graph = func_graph.FuncGraph(self._name)
        self.dependencies = auto_control_deps.AutomaticControlDependencies()
        self._calls = None
        self._positions = {}
        _open_segments[id(self.graph)] = self

    def close(self):
        """Ends the trace. Calls with side effects take their place in the outer graph now."""
        self.dependencies.__exit__(None, None, None)
        self.graph.control_outputs.extend(self.dependencies.ops_which_must_run)
        if self.graph.control_outputs:
            self.calls()

    def calls(self):
        """The operations that call the function, one a replica."""
        if self._calls is None:
            run = self._run
            # Without side effects, a call that nobody uses need not run.
            stateful = any(_has_side_effect(op) for op in self.graph.get_operations())
            attributes = {
                "f": attr_value_pb2.AttrValue(func=attr_value_pb2.NameAttrList(name=self._name)),
                "Tin": _types(t for t, _ in self.graph.captures),
                "Tout": _types([]),
                "config_proto": attr_value_pb2.AttrValue(s=_CONFIG.SerializeToString()),
            }
            self._calls = []
            with ops.Graph.as_default(run.outer), tf.control_dependencies(None):
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

    def output(self, tensor, replica):
        """A tensor of the segment's graph as its call on a replica returns it."""
        for external, internal in self.graph.captures:
            if internal is tensor:
                return self._run.tensor_of(external, replica)
        if id(tensor) not in self._positions:
            self._positions[id(tensor)] = len(self.graph.outputs)
            self.graph.outputs.append(tensor)
            is_read = tensor.op.type in auto_control_deps_utils.RESOURCE_READ_OPS
            if is_read and tensor.op not in self.graph.control_outputs:
                # Where the call becomes part of the step, a later write waits for this alone.
                self.graph.control_outputs.append(tensor.op)
            for call in self.calls():
                call._set_type_list_attr("Tout", self.graph.output_types)
                call._add_outputs([tensor.dtype.as_datatype_enum], [tensor.shape])
                handle_data_util.copy_handle_data(tensor, call.outputs[-1])
        return self.calls()[replica].outputs[self._positions[id(tensor)]]

    def define(self):
        """Defines the function, now that its outputs are known."""
        if self._calls is None:
            return
        # The outputs of a call exist when all of it is done. A single one is made part of the step,
        # so that gradients leave while earlier layers compute theirs; several would make a graph
        # that grows with their number.
        several = len(self._calls) > 1
        attributes = {"_noinline": attr_value_pb2.AttrValue(b=several)}
        function = atomic_function.from_func_graph(self._name, self.graph, attributes)
        self._run.outer._add_function_recursive(function)
        # So that replicas may read one variable at the same time.
        read_only = auto_control_deps_utils.get_read_only_resource_input_indices_graph(self.graph)
        for call in self._calls:
            ops.set_int_list_attr(
                call, auto_control_deps_utils.READ_ONLY_RESOURCE_INPUTS_ATTR, read_only
            )


class _ReplicaContext(distribute_lib.ReplicaContext):
    def __init__(self, run, first_replica):
        super().__init__(run.strategy, first_replica)
        self._run = run

    def _merge_call(self, fn, args, kwargs):
        return self._run.merge(fn, args, kwargs)

    @property
    def replica_id_in_sync_group(self):
        return self._run.replica_id

    @property
    def devices(self):
        return [self._run.devices[0]]


def _types(tensors):
    types = [tensor.dtype.as_datatype_enum for tensor in tensors]
    return attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(type=types))


def _has_side_effect(op):
    return op._is_stateful and op.type not in auto_control_deps_utils.RESOURCE_READ_OPS


def _is_tensor(value):
    """Whether a value consists of tensors (variables do not count)."""
    if isinstance(value, tf.Variable | values.DistributedValues):
        return False
    return isinstance(value, tf.Tensor | tf.__internal__.CompositeTensor)


def _are_same(components):
    first = components[0]
    return all(v is first for v in components) or (
        isinstance(first, bool | int | float | str | None)
        and all(type(v) is type(first) and v == first for v in components)
    )


def _as_tensor(value):
    """Reads what an assignment returned, while its graph is the current one."""
    if isinstance(value, resource_variable_ops._UnreadVariable):
        return value.read_value()
    return value
