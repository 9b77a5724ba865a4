"""Devices, and values placed on them."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils, values
from tensorflow.python.eager import context, lift_to_graph
from tensorflow.python.framework import auto_control_deps_utils, func_graph, ops
from tensorflow.python.trackable import base as trackable


def devices_are_initialized() -> bool:
    """Returns True if TensorFlow has fixed its devices (none can be added afterwards)."""
    # The public API only raises when a call changes the configuration.
    return context.context()._initialized


def devices_are_unknown() -> bool:
    """Returns True if TensorFlow has not looked for devices, which would use a GPU's driver."""
    return not devices_are_initialized() and context.context()._physical_devices is None


def cluster_is_joined() -> bool:
    """Returns True if this process is in a cluster: its server runs, for an earlier strategy."""
    return context.context()._collective_ops_server_def is not None


def devices_of_replicas(num_replicas: int, num_devices: int) -> list[int]:
    """Returns each replica's device number: even shares in order, like the rows of a batch."""
    return [replica * num_devices // num_replicas for replica in range(num_replicas)]


def mirrored(tensors: Sequence[tf.Tensor]) -> Any:
    """Groups one tensor per local device into a value that `select_replica` takes apart again."""
    # Type checkers would infer the type of the default, a sibling class.
    kind: typing.Any = values.Mirrored
    return distribute_utils.regroup(tuple(tensors), wrap_class=kind)


def per_replica(tensors: Sequence[tf.Tensor]) -> Any:
    """Groups one tensor per local replica into a value, like arguments of `merge_call`."""
    return distribute_utils.regroup(tuple(tensors))


def local_tensors(value: typing.Any, count: int = 1) -> Sequence[typing.Any]:
    """Returns the component of each of `count` local replicas, in replica order."""
    if isinstance(value, values.DistributedValues):
        return value.values  # pyright: ignore[reportAttributeAccessIssue] (its subclasses have it)
    return (value,) * count


def are_of_same_tensors(parts: Sequence[Any]) -> bool:
    """Returns True if structures, such as `tf.IndexedSlices`, consist of the very same tensors."""
    flat = [tf.nest.flatten(part, expand_composites=True) for part in parts]
    return all(
        len(other) == len(flat[0]) and all(a is b for a, b in zip(flat[0], other, strict=True))
        for other in flat[1:]
    )


def value_outside_functions(initial_value: Any, dtype: Any = None) -> Any:
    """Returns a variable's initial value as an array, if a function is under construction.

    Without a strategy, `tf.Variable(tf.zeros([3]))` works in `build`, which Keras calls while it
    traces a step. Strategies also build models in graphs that never run.

    Args:
        initial_value: the value, or a callable without arguments that returns the value.
        dtype: type of the value; None: the value's own.

    Returns:
        The value itself if no function is under construction. A symbolic tensor if the value
        depends on the function's arguments, or on a variable that the function wrote before.
    """
    if not ops.inside_function() or not ops.executing_eagerly_outside_functions():
        return initial_value
    stubbed: typing.Any = trackable  # stubs of TensorFlow lack the class
    if isinstance(initial_value, stubbed.CheckpointInitialValueCallable):
        return initial_value
    value = initial_value() if callable(initial_value) else initial_value
    value = tf.convert_to_tensor(value, dtype=dtype)
    if not tf.is_symbolic_tensor(value):
        return value
    constant = tf.get_static_value(value)
    if constant is not None:
        return constant

    def lifted():
        sources = [
            captured
            for tensor, captured in value.graph.captures
            if isinstance(tensor, ops.EagerTensor) and not _is_written(tensor, value.graph)
        ]
        graph = ops.get_default_graph()
        return lift_to_graph.lift_to_graph([value], graph, sources, handle_captures=True)[value]

    try:
        with tf.init_scope():
            # A concrete function: TensorFlow warns of many calls of functions that are traced.
            return tf.function(lifted, autograph=False).get_concrete_function()().numpy()
    except lift_to_graph.UnliftableError:
        return value


def _is_written(handle, graph):
    """Returns True if a function under construction may write to the variable of a handle."""
    while isinstance(graph, func_graph.FuncGraph):
        for tensor, captured in graph.captures:
            if tensor is handle and any(
                captured in auto_control_deps_utils.get_read_write_resource_inputs(operation)[1]
                for operation in captured.consumers()
            ):
                return True
        graph = graph.outer_graph
    return False


def is_distributed(value: Any) -> bool:
    """Returns True if a value has a component for each replica."""
    return isinstance(value, values.DistributedValues)


def counts_once(value: Any, num_local: int, process_group: Any) -> bool:
    """Returns True if a value is one tensor for all replicas of a single process.

    Such a value, made outside replicas, is reduced to itself, as by stock strategies.
    """
    return process_group is None and num_local > 1 and not is_distributed(value)


def variable_paths(variables: Sequence[Any]) -> list[str]:
    """Returns unique names: Keras' path for Keras' variables, TensorFlow's name for others."""
    paths = []
    for variable in variables:
        name = getattr(variable, "path", None) or variable.name.removesuffix(":0")
        path, count = name, 0
        while path in paths:
            count += 1
            path = f"{name}_{count}"
        paths.append(path)
    return paths
