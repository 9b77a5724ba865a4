"""Warns if a user's own step divides a loss by the number of replicas twice or not at all.

Optimizers sum gradients over replicas: a replica's mean loss must be divided by their number.
Keras' losses are divided already; results of `tf.reduce_mean` are not.
"""

import warnings
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.collectives.extended import LocalReplicas
from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.replicas.padded_reductions import (
    averaged_over_replicas,
    is_sum_of_replicas,
)
from terngrad_tf.distribute.private.replicas.replica_data import (
    are_of_same_examples,
    differs,
    example_counts,
    is_length_of_first_axis,
    is_mean_of_examples,
    is_sum_of_own_examples,
    original,
)

# With two replicas, one half may be part of the loss, as for squares.
_FEWEST_FOR_TWICE = 3
_ROUNDING = 1e-5
_SAME_SCALE = ("Cast", "EnsureShape", "Identity", "Neg", "Reshape", "Squeeze")
SUMS = ("Add", "AddV2", "AddN", "Sub")
# Operations of steps that clip or replace elements of gradients.
_CHANGES = ("ClipByValue", "Maximum", "Minimum", "Mul", "RealDiv", "Select", "SelectV2")
_RULE = (
    "A replica's loss must be its mean divided by `strategy.num_replicas_in_sync`; Keras' losses"
    " and `tf.nn.compute_average_loss` are divided already"
)


def note_scaled(loss: tf.Tensor) -> tf.Tensor:
    """Notes that Keras has divided a loss by the number of replicas."""
    loss._is_scaled_by_keras = True
    return loss


def is_scaled(loss: tf.Tensor) -> bool:
    """Returns True if Keras has divided a loss, or all its terms, by the number of replicas.

    Eager tensors do not tell their terms.
    """
    if not tf.is_symbolic_tensor(loss):
        return hasattr(loss, "_is_scaled_by_keras")
    return _all_terms(loss, lambda term, _: hasattr(term, "_is_scaled_by_keras"))


def is_sum(loss: tf.Tensor, process_group: Any) -> bool:
    """Returns True if all terms of a loss are sums over the replica's examples, or multiples."""
    return _all_terms(loss, lambda term, _: is_sum_of_own_examples(term, process_group))


def _all_terms(loss, holds):
    """Returns True if `holds(term, factor)` for all terms of a loss.

    A quotient is no term: a sum divided by the number of examples is a mean.
    """
    pending, seen = [(loss, 1.0)], set()
    while pending:
        term, factor = pending.pop()
        op = term.op
        if id(term) in seen or holds(term, factor) or is_zero(op):
            continue
        seen.add(id(term))
        if stacked := _stacked(op):
            share = 1 / len(stacked) if op.type == "Mean" else 1
            pending += [(part, factor * share) for part in stacked]
        elif op.type in (*_SAME_SCALE, "Sum"):
            pending.append((op.inputs[0], factor))
        elif op.type in SUMS:
            pending += [(summand, factor) for summand in op.inputs]
        elif op.type == "Mul" and (scaled := factor_of(op, factor)):
            pending += scaled
        else:
            return False
    return True


def _stacked(op):
    """Returns the numbers of which an operation is the sum or the mean, as of a list; else []."""
    is_stack = op.type in ("Sum", "Mean") and op.inputs[0].op.type == "Pack"
    return list(op.inputs[0].op.inputs) if is_stack and op.inputs[0].shape.rank == 1 else []


def is_zero(op: tf.Operation) -> bool:
    """Returns True for a constant 0, with which Python's `sum` begins."""
    return op.type == "Const" and not tf.get_static_value(op.outputs[0]).any()


def warn_of_scale(optimizer: Any, gradients: Any) -> None:
    """Warns if an optimizer trains at a wrong rate; in replica context.

    The loss may have a wrong scale, all replicas may have the same batch, or the step may have
    summed the gradients already.
    """
    parts = map(averaged_over_replicas, gradients)
    wrong = {getattr(gradient, "_wrong_scale", None) for gradient in parts} - {None}
    for fault in wrong:
        warnings.warn(f"The optimizer {optimizer.name!r} trains {fault}. {_RULE}", stacklevel=2)
    strategy = tf.distribute.get_strategy()
    count, extended = strategy.num_replicas_in_sync, strategy.extended
    if count == 1 or not isinstance(extended, LocalReplicas) or tf.executing_eagerly():
        return
    if are_of_same_examples(gradients, extended.process_group):
        warnings.warn(
            f"The optimizer {optimizer.name!r} gets gradients of the same examples from all {count}"
            f" replicas: {count} times the work, and {count} times the rate if the loss is their"
            " mean. Give `strategy.run` batches of"
            " `strategy.experimental_distribute_dataset(dataset)`, which are divided",
            stacklevel=2,
        )
    if any(map(_is_summed, gradients)):
        warnings.warn(
            f"The optimizer {optimizer.name!r} gets gradients that the step has summed over all"
            f" {count} replicas, and sums them once more: {count} times the rate. Give it"
            " `sum / strategy.num_replicas_in_sync`",
            stacklevel=2,
        )


def _is_summed(gradient):
    """Returns True for a sum over replicas, also if elementwise operations changed the sum.

    Constant factors end the search: they may divide by the number of replicas.
    """
    # Scalars may be divided by sums over replicas, such as numbers of examples.
    if gradient is None or gradient.shape.rank == 0:
        return False
    pending, seen = tf.nest.flatten(gradient, expand_composites=True)[:1], set()
    while pending:
        tensor = original(pending.pop())
        if is_sum_of_replicas(tensor):
            return True
        if id(tensor) in seen or not tf.is_symbolic_tensor(tensor):
            continue
        seen.add(id(tensor))
        op = tensor.op
        if op.type in ("Mul", "RealDiv") and factor_of(op, 1.0):
            continue
        if op.type == "IdentityN":
            pending.append(op.inputs[tensor.value_index])
        elif op.type in (*_CHANGES, *_SAME_SCALE, *SUMS):
            pending += [value for value in op.inputs if value.shape == tensor.shape]
    return False


@patch(tf.GradientTape, "gradient")
def _note_target(stock, self, target, *args, **kwargs):
    """Marks the gradients of a loss with a wrong scale.

    An optimizer does not see the loss. Derived gradients are not marked: their scale may be right.
    """
    gradients = stock(self, target, *args, **kwargs)
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(context.strategy.extended, LocalReplicas):
        return gradients
    if context.num_replicas_in_sync > 1 and tf.is_symbolic_tensor(target):
        fault = _wrong_scale(target, context)
        for gradient in tf.nest.flatten(gradients) if fault else ():
            if gradient is not None:
                gradient._wrong_scale = fault
    return gradients


def _wrong_scale(loss, context):
    """Returns the fault in the scale of a loss, or None if no fault is known."""
    count, group = context.num_replicas_in_sync, context.strategy.extended.process_group
    scales, of_means, pending, seen = [], [], [(loss, 1.0)], set()
    while pending:
        tensor, scale = pending.pop()
        op = tensor.op
        if hasattr(tensor, "_is_scaled_by_keras"):
            scales.append(scale)
            continue
        if (id(tensor), scale) in seen:
            continue
        seen.add((id(tensor), scale))
        if op.type in _SAME_SCALE:
            pending.append((op.inputs[0], scale))
        elif op.type in SUMS:
            pending += [(term, scale) for term in op.inputs]
        elif stacked := _stacked(op):
            # The mean of several means is one, whatever their number.
            pending += [(part, scale) for part in stacked]
        elif _is_own_mean(_under_root(tensor), count, group):
            of_means.append(scale)
        elif op.type in ("Mul", "RealDiv"):
            pending += factor_of(op, scale)
    if _are_undivided(of_means, count):
        return (
            f"at {count} times the rate, by a mean over each replica's examples that is summed"
            f" over {count} replicas"
        )
    is_twice = len(scales) == 1 and abs(scales[0] * count - 1) < _ROUNDING
    if is_twice and count >= _FEWEST_FOR_TWICE:
        return f"at 1/{count} of the rate, by a loss of Keras divided by {count} once more"
    return None


def _under_root(tensor):
    """Returns what a square root is taken of, without an added constant; other tensors as they are.

    Roots of the replicas' means are summed as the means are.
    """
    if tensor.op.type != "Sqrt":
        return tensor
    tensor = tensor.op.inputs[0]
    while tensor.op.type in (*_SAME_SCALE, "Add", "AddV2", "Maximum"):
        others = [part for part in tensor.op.inputs if tf.get_static_value(part) is None]
        if len(others) != 1:
            break
        (tensor,) = others
    return tensor


def _are_undivided(scales, count):
    """Returns True if means with these scales are not divided by the number of replicas.

    So is a mean itself, and an average of several means, such as half of the sum of two, unless one
    of the scales may be the division.
    """
    is_average = abs(sum(scales) - 1) < _ROUNDING
    return 1.0 in scales or (is_average and not any(abs(s * count - 1) < _ROUNDING for s in scales))


def _is_own_mean(tensor, count, process_group):
    """Returns True for a mean over a replica's own examples, or another quotient of their sums.

    One part of a quotient may be divided, or multiplied, by the number of replicas: it is no mean.
    """
    op = tensor.op
    if op.type not in ("RealDiv", "DivNoNan"):
        return is_mean_of_examples(tensor) and differs(op.inputs[0], process_group)
    factors, own_counts = [], example_counts(op.inputs[0], process_group)

    def grows_with_examples(term, factor):
        while term.op.type in (*_SAME_SCALE, "Maximum"):
            term = term.op.inputs[0]
        if is_length_of_first_axis(term):
            # Constant if it is known.
            shape = tf.get_static_value(term.op.inputs[0])
            is_own = differs(term, process_group) if shape is None else shape[0] in own_counts
        else:
            is_own = is_sum_of_own_examples(term, process_group)
        if is_own:
            factors.append(factor)
        return is_own or tf.get_static_value(term) is not None

    for part, divided in zip(op.inputs, (1 / count, count), strict=True):
        factors.clear()
        if not _all_terms(part, grows_with_examples):
            return False
        if all(abs(factor / divided - 1) < _ROUNDING for factor in factors):
            return False
    return True


def factor_of(op: tf.Operation, scale: float) -> list[tuple[tf.Tensor, float]]:
    """Returns [(tensor, scale)] if an operation scales a tensor by a number; else []."""
    tensor, factor = op.inputs
    value = tf.get_static_value(factor)
    if value is None and op.type == "Mul":
        tensor, factor = factor, tensor
        value = tf.get_static_value(factor)
    if value is None or value.size != 1 or not value.item():
        return []
    value = float(value.item())
    return [(tensor, scale * value if op.type == "Mul" else scale / value)]
