"""Scales the gradients of trained factors of losses in a model's own step.

There the value of a Keras loss is the replica's mean, and only its gradient is scaled for the sum
over replicas. The gradient of a factor, such as a task's trained weight, follows from the value: it
would count once for each replica. Here the gradient of the product is scaled instead.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.keras.loss_scale import SUMS, factor_of, is_zero
from terngrad_tf.distribute.private.keras.step_results import gradient_scaling, losses_are_means
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.replica_data import captured, original

_OF_ALL = ("ConcatV2", "Maximum", "Minimum", "Pack", "Select", "SelectV2", *SUMS)
_OF_ONE = (
    *("Abs", "Cast", "ClipByValue", "DivNoNan", "EnsureShape", "Exp", "ExpandDims", "Identity"),
    *("Log", "Log1p", "Max", "Mean", "Min", "Neg", "Pow", "RealDiv", "Relu", "Reshape", "Sigmoid"),
    *("Softplus", "Sqrt", "Square", "Squeeze", "StopGradient", "StridedSlice", "Sum", "Tanh"),
)
_OF_ANY = ("BatchMatMulV2", "Einsum", "MatMul", "Mul")


@patch(tf.GradientTape, "gradient")
def _scale_products(stock, self, target, sources, output_gradients=None, *args, **kwargs):
    """Scales the gradients of a loss's terms, if some are products with Keras' losses."""
    terms, parts = [], tf.nest.flatten(target)
    if losses_are_means() and output_gradients is None and all(map(tf.is_symbolic_tensor, parts)):
        terms = _terms(parts, tf.nest.flatten(sources))
    if not _has_products_alone(terms):
        return stock(self, target, sources, output_gradients, *args, **kwargs)
    output_gradients, scalings = [], []
    for term, scale, losses in terms:
        gradient = tf.fill(tf.shape(term), tf.cast(scale, term.dtype))
        output_gradients.append(gradient_scaling(losses[0]).scale(gradient) if losses else gradient)
        scalings += [gradient_scaling(loss) for loss in losses]
    try:
        for scaling in scalings:
            scaling.is_done = True
        targets = [term for term, _, _ in terms]
        return stock(self, targets, sources, output_gradients, *args, **kwargs)
    finally:
        for scaling in scalings:
            scaling.is_done = False


def _terms(
    sums: Sequence[tf.Tensor], variables: Sequence[Any]
) -> list[tuple[tf.Tensor, Any, list[tf.Tensor]]]:
    """Returns the terms of sums, each with its factor and the Keras losses that it consists of.

    A factor is a number or a tensor on which no gradient depends. Warns of a term that consists of
    losses and of other values of the variables.
    """
    of_losses, of_variables = _computed_of(sums, variables)
    trained = of_losses | of_variables
    parts = _inputs_first(sums, lambda term: [summand for summand, _ in _summands(term, trained)])
    scales, terms = dict.fromkeys(map(id, parts), 0.0), []
    for each in sums:
        scales[id(original(each))] += 1.0
    for part in reversed(parts):
        summands = _summands(part, trained)
        for summand, factor in summands:
            scales[id(summand)] += factor * scales[id(part)]
        if summands or is_zero(part.op):
            continue
        losses = _losses_of(part)
        if not losses and id(part) in of_losses & of_variables:
            _warn_of_factors(part)
        elif not losses and id(part) in of_losses:
            below = _inputs_first([part], _inputs_above_losses)
            losses = [tensor for tensor in below if gradient_scaling(tensor)]
        terms.append((part, scales[id(part)], losses))
    return terms


def _has_products_alone(terms):
    """Returns True if some terms consist of Keras' losses, of which no other term is computed."""
    has_product = any(losses and not gradient_scaling(term) for term, _, losses in terms)
    others = [term for term, _, losses in terms if not losses]
    found = [loss for _, _, losses in terms for loss in losses]
    return has_product and not _depend_on(others, found)


def _computed_of(targets, variables):
    """Returns the ids of what is computed of Keras' losses, and of variables but by these losses.

    What is computed of detached variables does not count; a detached loss still is a loss.
    """
    sources = {id(original(getattr(variable, "handle", variable))) for variable in variables}
    of_losses, of_variables = set(), set()
    for tensor in _inputs_first(targets, _inputs_above_losses):
        inputs = {id(value) for value in _inputs_above_losses(tensor)}
        if gradient_scaling(tensor) or inputs & of_losses:
            of_losses.add(id(tensor))
        is_source = id(tensor) in sources or id(captured(tensor)) in sources
        if is_source or (inputs & of_variables and tensor.op.type != "StopGradient"):
            of_variables.add(id(tensor))
    return of_losses, of_variables


def _warn_of_factors(term):
    count = tf.distribute.get_strategy().num_replicas_in_sync
    warnings.warn(
        f"{term.op.type} joins a loss of Keras with trained variables in a way that is neither a"
        f" sum nor a product. Variables that multiply the loss there train at {count} times the"
        " rate. Multiply losses by trained factors outside of `tf.cond`, and add other terms after"
        " that",
        stacklevel=2,
    )


def _inputs_above_losses(tensor):
    return [] if gradient_scaling(tensor) else [original(value) for value in tensor.op.inputs]


def _summands(term, trained):
    """Returns [(tensor, factor)] for a sum or a multiple; [] for other terms."""
    op = term.op
    if gradient_scaling(term) or term.shape.rank != 0:
        return []
    if op.type in ("Mul", "RealDiv"):
        summands = factor_of(op, 1.0) or _untrained_factor(op, trained)
    elif op.type in ("Identity", "Neg", *SUMS):
        first = -1.0 if op.type == "Neg" else 1.0
        others = -1.0 if op.type == "Sub" else 1.0
        summands = [(value, others if i else first) for i, value in enumerate(op.inputs)]
    else:
        return []
    return [(original(value), factor) for value, factor in summands]


def _untrained_factor(op, trained):
    """Returns [(tensor, factor)] for a factor on which no gradient depends, as for loss scaling."""
    one, other = op.inputs
    if id(original(other)) not in trained:
        return [(one, other if op.type == "Mul" else 1 / other)]
    if op.type == "Mul" and id(original(one)) not in trained:
        return [(other, one)]
    return []


def _losses_of(term):
    """Returns Keras' losses if all terms of a tensor are products with some of them; else []."""
    losses, are_of_losses = [], {}
    for tensor in _inputs_first([term], _factors):
        found = [are_of_losses[id(value)] for value in _factors(tensor)]
        if gradient_scaling(tensor):
            losses.append(tensor)
            found = [True]
        every = all if tensor.op.type in _OF_ALL else any
        are_of_losses[id(tensor)] = bool(found) and every(found)
    return losses if are_of_losses[id(original(term))] else []


def _factors(tensor):
    """Returns the tensors of which one, or each for a sum, must consist of losses."""
    op = tensor.op
    if gradient_scaling(tensor) or op.type not in (*_OF_ALL, *_OF_ANY, *_OF_ONE):
        return []
    inputs = [original(value) for value in op.inputs if value.dtype.is_floating]
    if op.type in _OF_ALL:
        return [value for value in inputs if value.op.type != "Const"]
    return inputs[:1] if op.type in _OF_ONE else inputs


def _depend_on(tensors, others):
    """Returns True if one of the first tensors is computed from one of the others."""
    ids = {id(other) for other in others}
    inputs = _inputs_first(tensors, lambda tensor: map(original, tensor.op.inputs))
    return any(id(tensor) in ids for tensor in inputs)


def _inputs_first(tensors, inputs_of):
    """Returns tensors and all those below them, by `inputs_of`, each once and after its inputs."""
    ordered, seen, pending = [], set(), [(original(tensor), False) for tensor in tensors]
    while pending:
        tensor, is_done = pending.pop()
        if is_done:
            ordered.append(tensor)
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            pending.append((tensor, True))
            pending += [(value, False) for value in inputs_of(tensor)]
    return ordered
