"""Checks of `DiLoCo`'s arguments."""

import math
from typing import Any

import keras

from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.distribute.exchange.options import AUTO
from terngrad_tf.distribute.local_sgd.fragments import Turns
from terngrad_tf.distribute.local_sgd.outer_momentum import default_outer_momentum
from terngrad_tf.distribute.steps.local_steps_optimizer import LocalStepsOptimizer


def turns_of(
    sync_every: Any, sync_seconds: float | None, fragments: int, overlap: int
) -> Turns | None:
    """After which steps groups are exchanged; None if time or a measurement decides."""
    if sync_seconds is None and sync_every != AUTO:
        is_known = sync_every is None or is_integer(sync_every, 1)
        rule = f'must be a positive integer or "{AUTO}"'
        check(is_known, "sync_every", rule, sync_every)
        return Turns(32 if sync_every is None else sync_every, fragments, overlap)
    by = f'sync_every="{AUTO}"'
    if sync_seconds is not None:
        by = "`sync_seconds`"
        is_number = isinstance(sync_seconds, int | float) and not isinstance(sync_seconds, bool)
        is_positive = is_number and 0 < sync_seconds < math.inf
        check(is_positive, "sync_seconds", "must be a positive number", sync_seconds)
        check(sync_every is None, "sync_every", f"must not go with {by}", sync_every)
    check(fragments == 1, "fragments", f"must be 1 with {by}", fragments)
    check(overlap == 0, "overlap", f"must be 0 with {by}", overlap)
    return None


def check_mixing(alpha: Any, error_feedback: Any) -> None:
    """Raises ValueError for values of `alpha` and `error_feedback` of another kind."""
    is_share = isinstance(alpha, int | float) and 0 <= alpha <= 1
    check(is_share, "alpha", "must be a number from 0 to 1", alpha)
    is_known = error_feedback is None or isinstance(error_feedback, bool)
    check(is_known, "error_feedback", "must be a bool or None", error_feedback)


def optimizers_of(
    inner: Any, outer: Any, sync_every: Any, sync_seconds: float | None
) -> tuple[keras.optimizers.Optimizer, keras.optimizers.Optimizer]:
    """The inner and the outer optimizer; None takes the default outer one.

    Raises:
        ValueError: an optimizer has an option that belongs to the other, or to neither.
    """
    if outer is None:
        # The number of steps is chosen later.
        momentum = 0.0 if sync_every == AUTO else default_outer_momentum(sync_every)
        outer = keras.optimizers.SGD(1.0, momentum=momentum, nesterov=momentum > 0)
    inner, outer = keras.optimizers.get(inner), keras.optimizers.get(outer)
    rule = (
        "must be an optimizer that scales no loss and takes no local steps; put DiLoCo into"
        " LossScaleOptimizer"
    )
    for role, optimizer in (("inner", inner), ("outer", outer)):
        is_plain = not isinstance(
            optimizer, keras.optimizers.LossScaleOptimizer | LocalStepsOptimizer
        )
        check(is_plain, role, rule, optimizer)
        # As subspace optimizers do, whose steps are the sum over replicas.
        exchanges = hasattr(optimizer, "exchange")
        check(not exchanges, role, "must not exchange gradients in its own steps", optimizer)
    check(not inner.use_ema, "inner", "must have no moving average; give it to `outer`", inner)
    accumulates = inner.gradient_accumulation_steps is not None
    rule = "must have no gradient_accumulation_steps with `sync_seconds`"
    check(sync_seconds is None or not accumulates, "inner", rule, inner)
    for option in ("loss_scale_factor", "gradient_accumulation_steps"):
        check(getattr(outer, option) is None, "outer", f"must have no {option}", outer)
    return inner, outer


def has_error_feedback(error_feedback: bool | None, quantization: Any) -> bool:
    """True if exchanges use error feedback, which needs a budget; None: if there is one."""
    has_budget = quantization.bits_per_element is not None
    rule = "must go with the strategy's `bits_per_element`"
    check(has_budget or not error_feedback, "error_feedback", rule, error_feedback)
    return has_budget if error_feedback is None else error_feedback
