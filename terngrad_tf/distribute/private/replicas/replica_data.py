"""Finds out whether the values that replicas write may differ, except for means over examples."""

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values
from tensorflow.python.framework import func_graph, op_def_registry

from terngrad_tf.distribute.private.replicas import replicas
from terngrad_tf.distribute.private.replicas.devices import local_tensors, per_replica
from terngrad_tf.distribute.private.replicas.segments import open_segments

# Stateful operations whose results depend on their inputs alone, unless functions that they call
# have state.
_CALLS = (
    *("If", "StatefulPartitionedCall", "While"),
    *("ReadVariableOp", "ResourceGather", "VariableShape"),
)
_SAME_VALUES = ("Cast", "EnsureShape", "Identity", "Reshape", "Squeeze")


def differs(
    value: Any, process_group: Any, *, but_for_means: bool = False, but_for_lengths: bool = False
) -> bool:
    """Returns True if a replica's value may differ from another replica's.

    Constants, values computed from weights, and values that replicas reduced or gathered are equal.

    Args:
        value: tensor of the graph of the replicas' function, or a Python value.
        process_group: None for one process, whose replicas share all outside values.
        but_for_means: True if means over a replica's examples count as equal: the mean over
            replicas is right for values linear in them, as exponential averages are.
        but_for_lengths: True if lengths of a replica's examples count as equal.
    """
    sources = _sources(value, process_group, but_for_means, but_for_lengths)
    return any(is_own for _, is_own in sources)


def are_of_same_examples(gradients: Sequence[Any], process_group: Any) -> bool:
    """Returns True if all replicas compute gradients of the same examples.

    Args:
        gradients: tensors of the graph of the replicas' function, or None.
        process_group: as in `differs`.
    """
    has_examples = False
    # Values from outside with the shape of a gradient may be gradients that are summed already.
    shapes = [gradient.shape for gradient in gradients if gradient is not None]
    for gradient in gradients:
        for source, is_own in _sources(gradient, process_group):
            if is_own:
                return False
            if source.dtype in (tf.resource, tf.variant) or source.shape.rank == 0:
                continue
            has_examples |= source.shape.rank is None or source.shape not in shapes
    return has_examples


def _own_sources(value: Any, process_group: Any, but_for_means: bool = False) -> list[tf.Tensor]:
    """Returns the tensors by which a replica's value may differ: see `differs`."""
    sources = _sources(value, process_group, but_for_means)
    return [source for source, is_own in sources if is_own]


def _sources(
    value: Any, process_group: Any, but_for_means: bool = False, but_for_lengths: bool = False
) -> Iterator[tuple[tf.Tensor, bool]]:
    """Yields the tensors of which a replica's value is computed.

    With each, True if it may differ on another replica, see `differs`; False for tensors of the
    function around the replicas' one.
    """
    if isinstance(value, tf.Variable | values.DistributedValues):
        value = tf.convert_to_tensor(value)
    by_segments = replicas.in_segment()
    pending, seen = tf.nest.flatten(value, expand_composites=True), set()
    while pending:
        tensor = pending.pop()
        # Eager tensors are the same for all.
        if id(tensor) in seen or not tf.is_symbolic_tensor(tensor):
            if _is_summed_when_read(tensor):
                yield tensor, True
            continue
        seen.add(id(tensor))
        if replicas.is_shared_tensor(tensor) or (but_for_means and is_mean_of_examples(tensor)):
            continue
        if but_for_lengths and _is_length_of_examples(tensor.op):
            continue
        if replicas.is_own_tensor(tensor):
            yield tensor, True
            continue
        if by_segments and process_group is None and not _is_in_segment(tensor.graph):
            yield tensor, False
            continue
        outside = captured(tensor)
        if outside is not None:
            pending.append(outside)
        elif tensor.op.type == "Placeholder" or _has_state(tensor.op):
            yield tensor, True
        elif tensor.op.type == "IdentityN":
            pending.append(tensor.op.inputs[tensor.value_index])
        else:
            pending += tensor.op.inputs


def as_specified(batch: Any, spec: Any) -> Any:
    """Returns a structure of batches whose axes have unknown lengths where those of a spec have.

    From 3.16 on, Keras traces a step with the lengths of a batch. A replica's number of examples
    would be a constant, equal on all replicas, which nothing tells from a counter's 1.
    """

    def of_value(value, spec):
        spec = spec._value_specs[0] if isinstance(spec, values.PerReplicaSpec) else spec
        if not isinstance(spec, tf.TensorSpec):
            return value
        return per_replica([_with_shape(part, spec.shape) for part in local_tensors(value)])

    return tf.nest.map_structure(of_value, batch, spec, check_types=False)


def _with_shape(tensor, shape):
    if not tf.is_symbolic_tensor(tensor) or tensor.shape == shape:
        return tensor
    return tf.compat.v1.placeholder_with_default(tensor, shape)


def is_mean_of_examples(tensor: tf.Tensor) -> bool:
    """Returns True for a mean, or a weighted mean, over the first axis of a tensor."""
    op = tensor.op
    if op.type == "Mean":
        return _reduces_first_axis(op)
    if op.type.startswith("FusedBatchNorm") and not op.type.endswith("Grad"):
        return tensor.value_index > 0
    if op.type not in ("RealDiv", "DivNoNan"):
        return False
    numerator, denominator = op.inputs
    return _is_sum_of_examples(numerator) and _is_sum_of_examples(denominator)


def example_counts(tensor: tf.Tensor, process_group: Any) -> set[int]:
    """Returns the first dimensions, if known and not 1, of the replica's own sources of a tensor.

    Args:
        tensor: tensor of the graph of the replicas' function.
        process_group: as in `differs`.
    """
    sources = _own_sources(tensor, process_group)
    return {source.shape[0] for source in sources if source.shape.rank} - {None, 1}


def is_sum_of_own_examples(tensor: tf.Tensor, process_group: Any) -> bool:
    """Returns True for a sum over a replica's examples, none of them a mean over examples.

    Args:
        tensor: tensor of the graph of the replicas' function.
        process_group: as in `differs`.
    """
    if tensor.op.type != "Sum" or not _reduces_first_axis(tensor.op):
        return False
    summands = tensor.op.inputs[0]
    sources = _own_sources(summands, process_group, but_for_means=True)
    # The first axis may be another, such as that of a matrix of correlations.
    lengths = {source.shape[0] for source in sources if source.shape.rank}
    return bool(sources) and (not summands.shape.rank or summands.shape[0] in {None, *lengths})


def _is_sum_of_examples(tensor):
    """Returns True for a sum over the first axis of a tensor, or an increment of such a sum."""
    while tensor.op.type in (*_SAME_VALUES, "AddV2", "Maximum"):
        tensor = tensor.op.inputs[0]
    return tensor.op.type == "Sum" and _reduces_first_axis(tensor.op)


def is_length_of_first_axis(tensor: tf.Tensor) -> bool:
    """Returns True for the length of a tensor's first axis."""
    return _axis_of_length(tensor.op) == 0


def _is_length_of_examples(op):
    """Returns True for the length of a tensor's axis, but for the first."""
    return bool(_axis_of_length(op))


def _axis_of_length(op):
    """Returns the first axis, from 0, whose length is taken from a shape; None if unknown.

    Known shapes are constants.
    """
    is_part = op.type == "StridedSlice" and op.inputs[0].op.type in ("Shape", "Const")
    if not is_part or not op.inputs[0].dtype.is_integer:
        return None
    axis, rank = tf.get_static_value(op.inputs[1]), op.inputs[0].shape[0]
    is_known = axis is not None and axis.size == 1 and rank is not None
    return axis.item() % rank if is_known else None


def _reduces_first_axis(op):
    """Returns True if an operation reduces the first axis, in a stack that of the stacked."""
    axes, tensor = tf.get_static_value(op.inputs[1]), op.inputs[0]
    if axes is None:
        # All axes of a tensor of unknown rank.
        return op.inputs[1].op.type == "Range"
    rank = tensor.shape.rank
    axes = {axis % rank if rank else axis for axis in axes.ravel()}
    axis = 0
    while tensor.op.type == "Pack" and tensor.op.get_attr("axis") in (0, -(tensor.shape.rank or 0)):
        tensor, axis = tensor.op.inputs[0], axis + 1
    return axis in axes


def _is_summed_when_read(tensor):
    container = getattr(tensor, "_distributed_container", lambda: None)()
    return isinstance(container, values.SyncOnReadVariable)


def _is_in_segment(graph):
    while graph is not None:
        if id(graph) in open_segments:
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def original(tensor: Any) -> Any:
    """Returns the symbolic tensor that functions captured for a placeholder; others as they are."""
    while tf.is_symbolic_tensor(tensor) and tf.is_symbolic_tensor(outside := captured(tensor)):
        tensor = outside
    return tensor


def captured(tensor: tf.Tensor) -> Any:
    """Returns the captured tensor behind a function's placeholder, or None."""
    if tensor.op.type != "Placeholder" or not isinstance(tensor.graph, func_graph.FuncGraph):
        return None
    return next((outside for outside, own in tensor.graph.captures if own is tensor), None)


def _has_state(op):
    """Returns True if an operation's results do not depend on its inputs alone."""
    if not op._is_stateful or op.type not in _CALLS:
        return op._is_stateful
    called = _called_by(op.node_def)
    pending = list(called)
    while pending:
        function = op.graph._get_function(pending.pop())
        for node in function.cached_definition.node_def if function is not None else ():
            definition = op_def_registry.get(node.op)
            is_stateful = definition is not None and definition.is_stateful
            if node.op not in _CALLS and is_stateful and definition.output_arg:
                return True
            pending += (functions := _called_by(node) - called)
            called |= functions
    return False


def _called_by(node):
    """Returns the names of the functions that a node of a graph calls."""
    functions = {value.func.name for value in node.attr.values()}
    return {name for name in functions if name}
