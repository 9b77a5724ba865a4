"""Runs many replicas on one device: traces their function once and calls it once per replica.

`tf.distribute` traces the function once per replica, each with its own copy of every variable. Here
all replicas of a process share one trace and, on one device, one copy of the weights:

* The function runs in Python once, as replica 0, and is cut into segments at the calls of
  `merge_call` (reductions, updates). Each segment becomes one TensorFlow function.
* Each segment is called once per replica, with its examples, number and own variables (metrics,
  batch-norm statistics, random states) in place of replica 0's.
* At a `merge_call`, the results are grouped by replica for the merge function.

A later segment may use any tensor of an earlier one, which becomes an output of the earlier calls.
So functions are defined when the last segment is known.

Python code gets the number of its replica as a tensor. Its effects beyond tensors, such as
printing, happen once, not once per replica.
"""

import contextlib
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, distribute_utils, values
from tensorflow.python.eager import record
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util, resource_variable_ops

from terngrad_tf.distribute.private.replicas.devices import are_of_same_tensors, local_tensors
from terngrad_tf.distribute.private.replicas.segments import (
    Segment,
    open_segments,
    using_first_replicas_tensors,
)

# {id of a tensor: the replicas' own tensors}. Runs within a merge function use the outer run's.
_own_tensors = {}
# {id: result of a merge function, the same for all replicas}.
_shared_tensors = {}
_LOOPS = ("While", "StatelessWhile")


def call_for_each_replica(
    strategy: tf.distribute.Strategy,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    jit_compile: bool = False,
) -> Any:
    """Adds `function` to the graph under construction, once per local replica.

    `extended.worker_devices` has one entry per local replica. With `jit_compile`, XLA compiles the
    segments, not merge functions.

    Returns:
        The function's result, per-replica if it differs between replicas.
    """
    return _Run(strategy, jit_compile).call(function, args, kwargs)


def needs_own_traces(structure: Any) -> bool:
    """Returns True if per-replica values hold different Python or NumPy values.

    The function may branch on these values.
    """
    return any(
        isinstance(value, values.DistributedValues)
        and not isinstance(value, values.DistributedVariable)
        and not all(_is_tensor(v) for v in local_tensors(value))
        and not _are_same(local_tensors(value))
        for value in tf.nest.flatten(structure)
    )


def in_segment() -> bool:
    """Returns True inside a replica function that is traced once for all replicas."""
    return isinstance(tf.distribute.get_replica_context(), _ReplicaContext)


def may_merge() -> bool:
    """Returns True where replicas may exchange values; in replica context.

    They may not inside a nested `tf.function`, `tf.cond` or `tf.while_loop`, nor after a loop that
    XLA compiles, which could not be differentiated later.
    """
    replica_context = tf.distribute.get_replica_context()
    if isinstance(replica_context, _ReplicaContext):
        return replica_context.run.may_merge
    # As in the threads of stock replicas.
    graph = ops.get_default_graph()
    return getattr(threading.current_thread(), "graph", graph) is graph


def merges_in_xla_context() -> bool:
    """Returns True if XLA compiles the merge functions of the graph that is being traced."""
    replica_context = tf.distribute.get_replica_context()
    is_cut = isinstance(replica_context, _ReplicaContext)
    graph = replica_context.run.outer if is_cut else ops.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def is_own_tensor(tensor: tf.Tensor) -> bool:
    """Returns True if a tensor stands for one own tensor per replica."""
    return id(tensor) in _own_tensors


def is_shared_tensor(tensor: tf.Tensor) -> bool:
    """Returns True if a tensor is the result of a reduction or another `merge_call`."""
    return id(tensor) in _shared_tensors


def after_tensors(structure: Any) -> contextlib.AbstractContextManager[Any]:
    """Context in which a graph computes nothing before the tensors of a structure exist.

    In the call that finds the end of the data, batches never exist. Without this context some
    counters would take that call for a step, and an exchange could begin.
    """
    if tf.executing_eagerly():
        return contextlib.nullcontext()
    graph = ops.get_default_graph()
    tensors = [
        tensor
        for value in tf.nest.flatten(structure)
        for component in local_tensors(value)
        for tensor in _tensors_of(component)
        if getattr(tensor, "graph", None) is graph
    ]
    return tf.control_dependencies([tf.group(*tensors)] if tensors else [])


def _tensors_of(value):
    return tf.nest.flatten(value, expand_composites=True) if _is_tensor(value) else []


class _Run:
    """One call of a function on all local replicas."""

    def __init__(self, strategy, jit_compile):
        self.strategy = strategy
        self.jit_compile = jit_compile
        self.devices = strategy.extended.worker_devices
        self.outer = ops.get_default_graph()
        # As stock strategies, all that the run computes waits for what the call waits for.
        self.control_inputs = self.outer._current_control_dependencies()
        self._keys, self._merged = [], []
        self._segments = []
        self._contexts = None

    def call(self, function, args, kwargs):
        extended = self.strategy.extended
        first = extended._get_replica_id_in_sync_group(0)
        self.replicas = [first + w for w in range(len(self.devices))]
        # Not constants, which would make a separate function for each call.
        self.replica_id = self._key(
            [tf.compat.v1.placeholder_with_default(replica, []) for replica in self.replicas]
        )
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
                del open_segments[id(segment.graph)]
            for key in self._keys:
                del _own_tensors[id(key)]
            for tensor in self._merged:
                _shared_tensors.pop(id(tensor), None)

    @property
    def may_merge(self):
        """True outside of nested functions, unless XLA compiles a loop of the segment."""
        graph = self._segments[-1].graph
        has_loop = self.jit_compile and any(op.type in _LOOPS for op in graph.get_operations())
        return ops.get_default_graph() is graph and not has_loop

    def merge(self, function, args, kwargs):
        """Ends a segment, runs `function` for all replicas together, begins the next segment."""
        if ops.get_default_graph() is not self._segments[-1].graph:
            raise RuntimeError(
                "`merge_call` (a reduction, or an optimizer's update) must not be called inside a"
                " nested `tf.function`, `tf.cond` or `tf.while_loop`."
            )
        args, kwargs = tf.nest.map_structure(_as_tensor, (args, kwargs))
        self._segments[-1].close()
        # Not `self.outer.as_default()`, which passes the segment's state on.
        with ops.Graph.as_default(self.outer), record.stop_recording():
            args, kwargs = self._for_all_replicas((args, kwargs))
            with using_first_replicas_tensors(self.outer):
                merged = function(self.strategy, *args, **kwargs)
            # On several devices, replicas have own tensors with equal values.
            are_mirrored = [isinstance(v, values.Mirrored) for v in tf.nest.flatten(merged)]
            merged = self._for_first_replica(merged)
        for value, is_mirrored in zip(tf.nest.flatten(merged), are_mirrored, strict=True):
            for tensor in _tensors_of(value):
                if is_mirrored or not is_own_tensor(tensor):
                    _shared_tensors[id(tensor)] = tensor
                    self._merged.append(tensor)
        self._begin_segment()
        return merged

    def tensor_of(self, tensor, replica):
        """Returns the tensor of a replica that corresponds to a tensor of replica 0."""
        if id(tensor) in _own_tensors:
            return _own_tensors[id(tensor)][replica]
        if isinstance(tensor, ops.EagerTensor):
            container = getattr(tensor, "_distributed_container", lambda: None)()
            return tensor if container is None else container.values[replica].handle
        segment = open_segments.get(id(tensor.graph))
        return tensor if segment is None else segment.output(tensor, replica)

    def _begin_segment(self):
        with ops.Graph.as_default(self.outer):
            segment = Segment(self)
        self._segments.append(segment)
        self._contexts.enter_context(segment.graph.as_default())
        segment.dependencies.__enter__()

    def _key(self, tensors):
        """Registers one tensor per replica; returns the tensor that stands for them in segments."""
        first = tensors[0]
        shape = tf.TensorShape(None)
        if all(t.shape.rank == first.shape.rank for t in tensors):
            shape = first.shape
            for tensor in tensors[1:]:
                shape = shape.most_specific_compatible_shape(tensor.shape)
        if shape.rank != first.shape.rank or shape.as_list() != first.shape.as_list():
            first = tf.compat.v1.placeholder_with_default(first, shape)
        # Not `first`, which functions may also use as replica 0's value for all replicas.
        key = tf.identity(first)
        _own_tensors[id(key)] = [first, *tensors[1:]]
        self._keys.append(key)
        return key

    def _for_first_replica(self, structure: typing.Any) -> typing.Any:
        """Replaces per-replica values by the values of replica 0."""

        def of_first(value):
            if isinstance(value, values.DistributedVariable) or not isinstance(
                value, values.DistributedValues
            ):
                return value
            components = local_tensors(value)
            if _are_same(components):
                return components[0]
            # Results of a merge function: differing Python arguments have own traces.
            parts = [v if _is_tensor(v) else tf.convert_to_tensor(v) for v in components]
            flat = [tf.nest.flatten(v, expand_composites=True) for v in parts]
            keys = [self._key(list(tensors)) for tensors in zip(*flat, strict=True)]
            return tf.nest.pack_sequence_as(_common_spec(parts), keys, expand_composites=True)

        return tf.nest.map_structure(of_first, structure)

    def _for_all_replicas(self, structure: typing.Any) -> typing.Any:
        """Groups the values of replica 0 with those that the other replicas have."""

        def of(value, replica):
            if isinstance(value, tf.Operation):
                segment = open_segments.get(id(value.graph))
                return segment.calls()[replica] if segment else value
            if not _is_tensor(value):
                return value
            return tf.nest.map_structure(
                lambda t: self.tensor_of(t, replica), value, expand_composites=True
            )

        def same_if_equal(parts):
            # Composite tensors are the same if their components are.
            return [parts[0]] * len(parts) if are_of_same_tensors(parts) else parts

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


class _ReplicaContext(distribute_lib.ReplicaContext):
    def __init__(self, run, first_replica):
        super().__init__(run.strategy, first_replica)
        self.run = run

    def _merge_call(self, fn, args, kwargs):
        return self.run.merge(fn, args, kwargs)

    @property
    def replica_id_in_sync_group(self):
        return self.run.replica_id

    @property
    def devices(self):
        return [self.run.devices[0]]


def _is_tensor(value):
    """Returns True if a value consists of tensors (variables do not count)."""
    if isinstance(value, tf.Variable | values.DistributedValues):
        return False
    return isinstance(value, tf.Tensor | tf.__internal__.CompositeTensor)


def _are_same(components):
    first = components[0]
    return all(v is first for v in components) or (
        isinstance(first, bool | int | float | str | None)
        and all(type(v) is type(first) and v == first for v in components)
    )


def _common_spec(parts):
    """Returns what describes the parts of all replicas; ragged rows may differ in number."""
    first, *others = map(tf.type_spec_from_value, parts)
    return first.most_specific_common_supertype(others) or parts[0]


def _as_tensor(value):
    """Reads the result of an assignment while its graph is the current graph.

    Also converts the shape of sparse rows: values for all replicas cannot contain tuples.
    """
    if isinstance(value, resource_variable_ops._UnreadVariable):
        return value.read_value()
    if isinstance(value, tf.IndexedSlices) and isinstance(value.dense_shape, tuple | list):
        shape = tf.convert_to_tensor(value.dense_shape, tf.int64)
        return tf.IndexedSlices(value.values, value.indices, shape)
    return value
