"""The step length along a direction: pure function."""

from collections.abc import Callable

import tensorflow as tf


def backtrack(
    loss_at: Callable[[tf.Tensor], tf.Tensor],
    loss: tf.Tensor,
    slope: tf.Tensor,
    *,
    rho: float,
    sigma: float,
    max_trials: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Largest factor of 1, rho, rho^2, ... whose step lowers the loss enough (Armijo's rule).

        loss_at(f) < loss + sigma * f * slope

    Losses that are NaN are refused by the rule itself. The search ends with the first factor
    accepted.

    Args:
        loss_at: function of a factor, scalar tensor, to the loss there, scalar tensor of the same
            dtype.
        loss: loss at factor 0, scalar tensor.
        slope: derivative of the loss in the factor at 0, negative scalar tensor.
        rho: number in (0, 1).
        sigma: number in (0, 1).
        max_trials: number of factors tried at most.

    Returns:
        Tuple of the factor tried last, whether it was accepted (bool), and how many were tried
        (int32).

    Source: Armijo, "Minimization of functions having Lipschitz continuous first partial
    derivatives", 1966.
    """
    # `f * rho^i` by multiplication: the same factors in every dtype and on every device.
    shrink = tf.cast(rho, loss.dtype)

    def goes_on(tried, factor, accepted):
        return tf.logical_and(tried < max_trials, tf.logical_not(accepted))

    def trial(tried, factor, accepted):
        factor = tf.where(tried > 0, factor * shrink, factor)
        accepted = loss_at(factor) < loss + tf.cast(sigma, loss.dtype) * factor * slope
        return tried + 1, factor, accepted

    tried, factor, accepted = tf.while_loop(
        goes_on,
        trial,
        (tf.constant(0), tf.ones([], loss.dtype), tf.constant(False)),
        # Trials are evaluated one after another by nature; more would only keep memory.
        parallel_iterations=1,
    )
    return factor, accepted, tried
