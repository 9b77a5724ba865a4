"""Scales the gradients of trained factors of losses in a model's own step.

There the value of a Keras loss is the replica's mean, and only its gradient is scaled for the sum
over replicas. The gradient of a factor, such as a task's trained weight, follows from the value: it
would count once for each replica. Here the gradient of the product is scaled instead.
"""

from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.keras.loss_scale import factor_of, is_zero
from terngrad_tf.distribute.private.keras.step_results import gradient_scaling, losses_are_means
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.replica_data import captured_from

_SUMS = ("Add", "AddV2", "AddN", "Sub")
_OF_ALL = ("ConcatV2", "Pack", *_SUMS)
_OF_ONE = (
    *("Abs", "Cast", "EnsureShape", "Exp", "ExpandDims", "Identity", "Log", "Mean", "Neg"),
    *("Pow", "RealDiv", "DivNoNan", "Reshape", "Sqrt", "Square", "Squeeze", "StridedSlice", "Sum"),
)
_OF_ANY = ("BatchMatMulV2", "Einsum", "MatMul", "Mul")


@patch(tf.GradientTape, "gradient")
def _scale_products(stock, self, target, sources, output_gradients=None, *args, **kwargs):
    """Scales the gradients of a loss's terms, if some are products with Keras' losses."""
    terms = []
    if losses_are_means() and tf.is_symbolic_tensor(target) and output_gradients is None:
        terms = _terms_with_products(target)
    if not terms:
        return stock(self, target, sources, output_gradients, *args, **kwargs)
    output_gradients, scalings = [], []
    for term, scale, losses in terms:
        gradient = tf.constant(scale, term.dtype)
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


def _terms_with_products(target: tf.Tensor) -> list[tuple[tf.Tensor, float, list[Any]]]:
    """Returns the terms of a loss, each with its factor and the Keras losses that it consists of.

    Returns none if no term is a product with Keras' losses, or if one adds others within a product.
    """
    terms, pending, has_product = [], [(target, 1.0)], False
    while pending:
        term, scale = pending.pop()
        term = _original(term)
        if term.shape.rank != 0:
            return []
        op, losses = term.op, []
        if gradient_scaling(term):
            terms.append((term, scale, [term]))
        elif op.type in ("Identity", *_SUMS):
            pending += [(op.inputs[0], scale)]
            pending += [(other, -scale if op.type == "Sub" else scale) for other in op.inputs[1:]]
        elif op.type == "Neg":
            pending.append((op.inputs[0], -scale))
        elif op.type in ("Mul", "RealDiv") and (factor := factor_of(op, scale)):
            pending += factor
        elif _consists_of_losses(term, losses):
            terms.append((term, scale, losses))
            has_product = True
        elif not is_zero(op):
            terms.append((term, scale, []))
    found = {id(loss) for _, _, losses in terms for loss in losses}
    others = [term for term, _, losses in terms if not losses]
    return terms if has_product and not _depend_on(others, found) else []


def _consists_of_losses(tensor, losses):
    """Returns True if all terms of a tensor are products with Keras' losses, which it appends."""
    tensor = _original(tensor)
    if gradient_scaling(tensor):
        losses.append(tensor)
        return True
    op = tensor.op
    inputs = [value for value in op.inputs if value.dtype.is_floating]
    if op.type in _OF_ANY:
        return any([_consists_of_losses(value, losses) for value in inputs])
    if op.type in _OF_ONE:
        return bool(inputs) and _consists_of_losses(inputs[0], losses)
    if op.type in _OF_ALL:
        return all(is_zero(value.op) or _consists_of_losses(value, losses) for value in inputs)
    return False


def _depend_on(tensors, ids):
    """Returns True if tensors are computed from those with these ids."""
    pending, seen = list(tensors), set()
    while pending:
        tensor = _original(pending.pop())
        if id(tensor) in ids:
            return True
        if id(tensor) not in seen:
            seen.add(id(tensor))
            pending += tensor.op.inputs
    return False


def _original(tensor):
    """Returns the tensor of an earlier part of the step, before replicas met, that this one is."""
    while tf.is_symbolic_tensor(outside := captured_from(tensor)):
        tensor = outside
    return tensor
