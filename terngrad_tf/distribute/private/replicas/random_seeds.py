"""Gives the random operations of a step different seeds on each replica.

An operation such as `tf.random.normal` gets two seeds when it is traced, for a generator that
advances with every draw. Replicas would share it and draw in the order of threads. So each random
operation becomes a choice among one per replica, with its own seeds. Replica 0 has the seeds of a
single replica. Stateless operations do not change.
"""

import copy
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph, ops, random_seed

# A prime far from the usual distances between seeds.
SEED_STRIDE = 1_000_000_007


def continue_seeds(graph: tf.Graph, previous: tf.Graph) -> None:
    """Gives the next random operation of a graph the seeds that it would have in another graph.

    TensorFlow counts by graph: the first operation of every segment would draw the same numbers.
    """
    counts = random_seed._graph_to_seed_dict
    counts[graph] = counts.get(previous, 0)


def seeded_operations(graph: func_graph.FuncGraph) -> list[tf.Operation]:
    """Returns a graph's operations that draw from seeded generators, directly or in functions."""
    stateful = [op for op in graph.get_operations() if op._is_stateful]
    if not stateful:
        return []
    seeded = _seeded(graph._functions.values())
    return [op for op in stateful if _draws(op.node_def, seeded)]


def choose_by_replica(
    function: atomic_function.AtomicFunction,
    graph: func_graph.FuncGraph,
    operations: Sequence[tf.Operation],
    position: tf.Tensor,
    replicas: Sequence[int],
) -> atomic_function.AtomicFunction:
    """Returns a function whose random operations use the seeds of the calling replica.

    Args:
        operations: `seeded_operations` of the function's graph.
        position: tensor of the graph, the caller's position in `replicas`.
        replicas: numbers of the replicas in the cluster.
    """
    definition = _copy(function, f"{function.name.decode()}_of_replicas")
    # Nodes have the order of the graph's operations, but maybe other names.
    arguments = {tensor.op for tensor in graph.inputs}
    body = [op for op in graph.get_operations() if op not in arguments]
    nodes = dict(zip(body, definition.node_def, strict=True))
    (which,) = _output_names(position.op, nodes)
    children, renamed = list(function.children), {}
    for operation in operations:
        alone = _function_of(operation, function.children)
        branches = [_with_seeds_of(alone, replica) for replica in replicas]
        children += [f for branch in branches for f in (branch, *branch.children)]
        names = _output_names(operation, nodes)
        _make_choice(nodes[operation], which, operation, branches)
        new_name = nodes[operation].name
        renamed |= {name: f"{new_name}:output:{i}" for i, name in enumerate(names)}
    for node in definition.node_def:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    for key, name in definition.ret.items():
        definition.ret[key] = renamed.get(name, name)
    return _defined(definition, function, children)


def _function_of(operation, functions):
    """Returns a function equivalent to an operation, which may call others."""
    graph = func_graph.FuncGraph(f"__random_{ops.uid()}")
    for function in functions:
        graph._add_function(function)
    with graph.as_default():
        graph.inputs = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in operation.inputs]
        graph.outputs = graph.create_op(
            operation.type,
            graph.inputs,
            [t.dtype for t in operation.outputs],
            attrs=dict(operation.node_def.attr),
        ).outputs
    return atomic_function.from_func_graph(graph.name, graph, {})


def _with_seeds_of(function, replica):
    """Returns a copy of a function that draws, all its callees included, with a replica's seeds."""
    functions = _by_name((function, *function.children))
    names = {name: f"{name}_{replica}_{ops.uid()}" for name in _seeded(functions.values())}
    copies = {}
    for name, new_name in names.items():
        definition = _copy(functions[name], new_name)
        for node in definition.node_def:
            if _has_seed(node):
                node.attr["seed2"].i += replica * SEED_STRIDE
            node.op = names.get(node.op, node.op)
            for called in _called(node):
                called.name = names.get(called.name, called.name)
        copies[name] = definition
    own = copies.pop(function.name.decode())
    copies = {name: _defined(d, functions[name], []) for name, d in copies.items()}
    children = [copies.get(_name(f), f) for f in function.children]
    return _defined(own, function, children)


def _make_choice(node, which, operation, branches):
    """Makes a node of a function's definition call one of several functions."""
    node.op = "Case"
    node.input[:] = [which, *node.input]
    node.attr.clear()
    node.attr["Tin"].list.type[:] = [t.dtype.as_datatype_enum for t in operation.inputs]
    node.attr["Tout"].list.type[:] = [t.dtype.as_datatype_enum for t in operation.outputs]
    node.attr["output_shapes"].list.shape.extend(t.shape.as_proto() for t in operation.outputs)
    for branch in branches:
        node.attr["branches"].list.func.add(name=branch.name.decode())
    # Inlines the branches, so that resources in them find their devices.
    node.attr["_lower_using_switch_merge"].b = True


def _output_names(operation, nodes):
    """Returns the names of an operation's outputs in a function's definition."""
    names = []
    for argument in operation.op_def.output_arg:
        count = 1
        if argument.number_attr:
            count = operation.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(operation.get_attr(argument.type_list_attr))
        names += [f"{nodes[operation].name}:{argument.name}:{i}" for i in range(count)]
    return names


def _copy(function, name):
    definition = copy.deepcopy(function.cached_definition)
    definition.signature.name = name
    return definition


def _defined(definition, like, children):
    """Returns the function of a definition, with another function's arguments and results."""
    function = atomic_function.from_function_def(definition, like.function_type)
    # `from_function_def` takes no children, but a calling graph must hold them.
    function._children = children
    return function


def _seeded(functions):
    """Returns the names of functions that draw from seeded generators, directly or in callees."""
    definitions = {name: f.cached_definition for name, f in _by_name(functions).items()}
    found = set()
    while more := {
        name
        for name, definition in definitions.items()
        if name not in found and any(_draws(node, found) for node in definition.node_def)
    }:
        found |= more
    return found


def _by_name(functions):
    """Returns functions by name, without those of TensorFlow 1, such as a part of `ctc_loss`."""
    return {_name(f): f for f in functions if isinstance(f, atomic_function.AtomicFunction)}


def _name(function):
    return function.name if isinstance(function.name, str) else function.name.decode()


def _draws(node, seeded):
    return _has_seed(node) or node.op in seeded or any(f.name in seeded for f in _called(node))


def _has_seed(node):
    """Returns True if a node has a seeded generator. Without one, both seeds are 0."""
    return "seed2" in node.attr and bool(node.attr["seed"].i or node.attr["seed2"].i)


def _called(node):
    """Yields the functions that a node refers to, such as the branches of a condition."""
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func
        yield from value.list.func
