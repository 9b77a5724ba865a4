"""Step length along a direction, as a pure function."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf


class Search(NamedTuple):
    """Result of a line search.

    Attributes:
        factor: the last factor tried.
        accepted: whether it lowers the loss enough, a bool tensor.
        num_trials: number of factors tried, int32.
    """

    factor: tf.Tensor
    accepted: tf.Tensor
    num_trials: tf.Tensor


def backtrack(
    loss_at: Callable[[tf.Tensor], tf.Tensor],
    loss: tf.Tensor,
    slope: tf.Tensor,
    *,
    rho: float,
    sigma: float,
    max_trials: int,
) -> Search:
    """Finds the largest factor of 1, rho, rho^2, ... that lowers the loss enough (Armijo's rule).

        loss_at(f) < loss + sigma * f * slope

    The rule rejects NaN losses.

    Args:
        loss_at: function of a scalar factor.
        loss: loss at factor 0.
        slope: derivative of the loss by the factor at 0, negative.
        rho: number in (0, 1).
        sigma: number in (0, 1).

    Source: Armijo, "Minimization of functions having Lipschitz continuous first partial
    derivatives", 1966.
    """
    # Products are equal in every dtype and on every device.
    shrink = tf.cast(rho, loss.dtype)

    def continues(tried, factor, accepted):
        return tf.logical_and(tried < max_trials, tf.logical_not(accepted))

    def trial(tried, factor, accepted):
        factor = tf.where(tried > 0, factor * shrink, factor)
        accepted = loss_at(factor) < loss + tf.cast(sigma, loss.dtype) * factor * slope
        return tried + 1, factor, accepted

    tried, factor, accepted = tf.while_loop(
        continues,
        trial,
        (tf.constant(0), tf.ones([], loss.dtype), tf.constant(False)),
        # Trials are sequential; more iterations would only use memory.
        parallel_iterations=1,
    )
    return Search(factor, accepted, tried)
