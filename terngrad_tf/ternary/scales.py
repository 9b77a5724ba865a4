"""The scale of a gradient tensor, before replicas share the largest."""

import dataclasses
import functools
import math
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.clip_factors import AUTO, check_factor

# Below this fraction of max|g|, a deviation is rounding error.
_NUMERICALLY_ZERO = 1e-6
# Steps over which training averages rounding errors, as momentum and small learning rates do;
# clipping errors are the same in all steps.
HORIZON = 10


class Moments(typing.NamedTuple):
    """Statistics that determine a scale, float32 tensors of equal shapes.

    Attributes:
        largest: max|g|.
        mean_size: mean of |g|.
        mean_square: mean of g squared.
        deviation: standard deviation of the population.
    """

    largest: tf.Tensor
    mean_size: tf.Tensor
    mean_square: tf.Tensor
    deviation: tf.Tensor


@dataclasses.dataclass(frozen=True)
class ScaleRule:
    """Computes the scale of a tensor from its moments.

    The scale s is `c * std(g)`, but at most max|g|: a larger one would only add variance. It is
    then raised if too many codes would be nonzero:

        s = max(s, mean|g| / nonzero_share)

    since a code is nonzero with a probability of at most |g| / s.

    `clip_factor="auto"` has no c. Clipped parts are lost in each step, while rounding is unbiased,
    so that its error shrinks by the number N of averaged replicas and h of steps:

        E(s) = sum max(|g| - s, 0)^2 + 1/(N h) sum m (s - m),   m = min(|g|, s)

    E is minimal if `2 N h sum max(|g| - s, 0)` equals the sum of all |g| that are at most s. For
    sizes that are 0 or exponentially distributed, the minimum, used for all gradients with h = 10,
    is

        s = x * sum g^2 / (2 sum |g|),   x the root of exp(x) = 2 N h + 1 + x

    For codes from -L to L, a size lies between two multiples of s / L, and the product of its
    distances to both replaces `m (s - m)`; see `auto_factor` for x.

    Args:
        clip_factor: c, at least 1e-5; 0 for max|g| (no clipping); or "auto".
        num_replicas: N, for "auto".
        levels: L, for "auto".
        nonzero_share: maximum expected fraction of nonzero codes in a tensor, in (0, 1].

    Raises:
        ValueError: an argument is out of range.
    """

    clip_factor: float | str
    num_replicas: int = 1
    levels: int = 1
    nonzero_share: float = 1.0

    def __post_init__(self) -> None:
        check_factor("clip_factor", self.clip_factor)
        if not 0 < self.nonzero_share <= 1:
            raise ValueError(
                "`nonzero_share` must be above 0 and at most 1. Received:"
                f" nonzero_share={self.nonzero_share}"
            )

    def scales(self, moments: Moments) -> tf.Tensor:
        """Returns the scales of tensors with finite elements, in the moments' shape."""
        largest, mean_size, mean_square, deviation = moments
        scales = largest
        if self.clip_factor == AUTO:
            size = tf.math.divide_no_nan(mean_square, 2 * mean_size)
            factor = auto_factor(self.num_replicas, self.levels)
            scales = tf.minimum(factor * size, largest)
        elif self.clip_factor:
            clipped = tf.minimum(tf.constant(self.clip_factor, tf.float32) * deviation, largest)
            scales = tf.where(deviation > _NUMERICALLY_ZERO * largest, clipped, largest)
        if self.nonzero_share < 1:
            scales = tf.maximum(scales, mean_size / tf.constant(self.nonzero_share, tf.float32))
        return scales


@functools.cache
def auto_factor(num_replicas: int, levels: int = 1) -> float:
    """Returns x of `ScaleRule`, the scale for exponentially distributed sizes with mean 1.

    For d = x / L, the errors of clipping and of rounding are, per element,

        2 exp(-x) + (1 - exp(-x)) / (1 - exp(-d)) * (d - 2 + (d + 2) exp(-d)) / (N h)

    Args:
        num_replicas: N.
        levels: L. For 1, the error is minimal at `exp(x) = 2 N h + 1 + x`.
    """
    if levels == 1:
        x = 1.0
        for _ in range(50):  # each divides the error by more than 2 N h
            x = math.log(2 * num_replicas * HORIZON + 1 + x)
        return x
    x = np.linspace(1, 60, 100_000)
    d = x / levels
    of_steps = (d - 2 + (d + 2) * np.exp(-d)) / -np.expm1(-d)
    errors = 2 * np.exp(-x) - np.expm1(-x) * of_steps / (num_replicas * HORIZON)
    return float(x[np.argmin(errors)])


def local_scale(gradient: tf.Tensor, clip_factor: float | str, **options: Any) -> tf.Tensor:
    """Computes the scale of one replica's gradient tensor: `min(clip_factor * std(g), max|g|)`.

    Rounding clips gradients beyond the scale. The standard deviation is the population's (mean
    removed). The scale is `max|g|` if `clip_factor` is 0 (no clipping) or all elements are equal.

    Args:
        gradient: float16, bfloat16 or float32 tensor with a static shape; computed in float32.
        clip_factor: standard deviations at which gradients are clipped, 0 or more, or "auto". 2.5
            suited all networks in the paper.
        **options: `num_replicas` and `nonzero_share`, see `ScaleRule`.

    Returns:
        float32 scalar; 0 for a tensor without nonzero elements; +inf if any element is NaN or
        infinite, since a maximum over replicas keeps inf but may drop NaN.

    Raises:
        ValueError: an argument is out of range.

    Example:
    >>> float(local_scale(tf.constant([3.0, 3.0]), clip_factor=2.5))
    3.0
    >>> float(local_scale(tf.constant([3.0, 1.0]), clip_factor=0, nonzero_share=0.5))
    4.0

    Source: Wen et al., TernGrad, NIPS 2017 (arXiv 1705.07878), section 3.4.
    """
    return scale_of(gradient, ScaleRule(clip_factor, **options))


def scale_of(gradient: tf.Tensor, rule: ScaleRule) -> tf.Tensor:
    """Computes `local_scale` by a rule."""
    row = tf.reshape(tf.cast(gradient, tf.float32), [1, -1])
    return scales_of_rows(row, [row.shape[1]], rule)[0] if row.shape[1] else tf.constant(0.0)


def scales_of_rows(rows: Any, sizes: Sequence[int], rule: ScaleRule) -> tf.Tensor:
    """Computes exact scales, in two passes, of tensors in zero-padded rows."""
    infinite = tf.constant(np.inf, tf.float32)
    # One constant for all reductions and one for both columns.
    axis, column = tf.constant(1), tf.constant([len(sizes), 1])
    finite = tf.reduce_all(tf.math.is_finite(rows), axis)
    largest = tf.reduce_max(tf.abs(rows), axis)
    counts, ones = tf.constant(sizes, tf.float32), tf.ones_like(largest)
    # Relative to the largest, squares neither overflow nor vanish, and equal elements are all 1.
    rows = rows / tf.reshape(tf.where(largest > 0, largest, ones), column)
    mean = tf.reduce_sum(rows, axis) / counts
    distances = rows - tf.reshape(mean, column)
    if min(sizes) < rows.shape[1]:
        # TensorFlow would hold a mask as a constant.
        distances *= tf.sequence_mask(sizes, rows.shape[1], tf.float32)
    moments = Moments(
        largest=ones,
        mean_size=tf.reduce_sum(tf.abs(rows), axis) / counts,
        mean_square=tf.reduce_sum(tf.square(rows), axis) / counts,
        deviation=tf.sqrt(tf.reduce_sum(tf.square(distances), axis) / counts),
    )
    # A raised scale may overflow, but infinity means non-finite gradients.
    scales = tf.minimum(rule.scales(moments) * largest, np.finfo(np.float32).max)
    return tf.where(finite, scales, infinite)
