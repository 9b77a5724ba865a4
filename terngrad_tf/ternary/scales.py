"""The scale of a gradient tensor, before replicas share the largest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# Below this fraction of max|g| a standard deviation is rounding error of equal elements.
_NUMERICALLY_ZERO = 1e-6


def local_scale(gradient: tf.Tensor, clip_factor: float) -> tf.Tensor:
    """Scale of one replica's gradient tensor: `min(clip_factor * std(g), max|g|)`.

    Gradients beyond the scale are clipped by the rounding. The standard deviation is that of the
    population (mean removed). A scale above the largest gradient would only add variance, so it is
    never larger; it is `max|g|` where `clip_factor` is 0 (no clipping) and where all elements are
    equal.

    Args:
        gradient: float16, bfloat16 or float32 tensor with a static shape; computed in float32.
        clip_factor: standard deviations at which gradients are clipped, 0 or more. 2.5 suited all
            networks in the paper.

    Returns:
        float32 scalar. 0 for a tensor without elements or of zeros only; +inf if any element is
        NaN or infinite, so that a maximum over replicas, which may drop NaN, still carries it.

    Raises:
        ValueError: `clip_factor` is negative or not finite.

    Example:
    >>> float(local_scale(tf.constant([3.0, 3.0]), clip_factor=2.5))
    3.0

    Source: Wen et al., TernGrad, NIPS 2017 (arXiv 1705.07878), section 3.4.
    """
    check_clip_factor(clip_factor)
    row = tf.reshape(tf.cast(gradient, tf.float32), [1, -1])
    return scales_of_rows(row, [row.shape[1]], clip_factor)[0] if row.shape[1] else tf.constant(0.0)


def check_clip_factor(clip_factor: float) -> None:
    """Raises ValueError unless it is zero or positive, and finite."""
    if not 0 <= clip_factor < float("inf"):
        raise ValueError(
            "`clip_factor` must be zero or a positive finite number."
            f" Received: clip_factor={clip_factor}"
        )


def choose(deviation: tf.Tensor, largest: tf.Tensor, clip_factor: float) -> tf.Tensor:
    """The rule of `local_scale` for finite elements."""
    if not clip_factor:
        return largest
    clipped = tf.minimum(tf.constant(clip_factor, tf.float32) * deviation, largest)
    return tf.where(deviation > _NUMERICALLY_ZERO * largest, clipped, largest)


def scales_of_rows(rows: Any, sizes: Sequence[int], clip_factor: float) -> tf.Tensor:
    """Scales of tensors in the rows of a matrix, each padded with zeros; two passes, exact."""
    infinite = tf.constant(np.inf, tf.float32)
    finite = tf.reduce_all(tf.math.is_finite(rows), axis=1)
    largest = tf.reduce_max(tf.abs(rows), axis=1)
    if not clip_factor:
        return tf.where(finite, largest, infinite)
    counts = tf.constant(sizes, tf.float32)
    # Divided by the largest, squares neither overflow nor vanish, and equal elements are all 1.
    divisor = tf.where(largest > 0, largest, tf.ones_like(largest))
    rows = rows / divisor[:, tf.newaxis]
    mean = tf.reduce_sum(rows, axis=1) / counts
    inside = tf.sequence_mask(sizes, rows.shape[1], tf.float32)
    squares = tf.square((rows - mean[:, tf.newaxis]) * inside)
    deviation = tf.sqrt(tf.reduce_sum(squares, axis=1) / counts) * largest
    return tf.where(finite, choose(deviation, largest, clip_factor), infinite)
