"""The scale of a gradient tensor, before workers share the largest."""

import numpy as np
import tensorflow as tf


def local_scale(gradient, clip_factor: float) -> tf.Tensor:
    """Scale of one worker's gradient tensor: `min(clip_factor * std(g), max|g|)`.

    Gradients beyond the scale are clipped by the rounding. The standard deviation is that of the
    population (mean removed). A scale above the largest gradient would only add variance, so it is
    never larger; it is `max|g|` where `clip_factor` is 0 (no clipping) and where all elements are
    equal.

    Args:
        gradient: float16, bfloat16 or float32 tensor; computed in float32 and wider.
        clip_factor: standard deviations at which gradients are clipped, 0 or more. 2.5 suited all
            networks in the paper.

    Returns:
        float32 scalar. 0 for a tensor without elements or of zeros only; +inf if any element is
        NaN or infinite, so that a maximum over workers, which may drop NaN, still carries it.

    Raises:
        ValueError: `clip_factor` is negative or not finite.

    Example:
    >>> float(local_scale(tf.constant([3.0, 3.0]), clip_factor=2.5))
    3.0

    Source: Wen et al., TernGrad, NIPS 2017 (arXiv 1705.07878), section 3.4.
    """
    return local_scales([gradient], clip_factor)[0]


def local_scales(gradients, clip_factor: float) -> tf.Tensor:
    """`local_scale` of each tensor of a list, as one float32 tensor of shape [T]."""
    if not 0 <= clip_factor < float("inf"):
        raise ValueError(
            "`clip_factor` must be zero or a positive finite number."
            f" Received: clip_factor={clip_factor}"
        )
    if not gradients:
        return tf.zeros([0], tf.float32)
    return tf.stack([_scale(tf.convert_to_tensor(g), clip_factor) for g in gradients])


def _scale(gradient: tf.Tensor, clip_factor: float) -> tf.Tensor:
    if gradient.shape.num_elements() == 0:
        return tf.zeros([], tf.float32)
    gradient = tf.reshape(tf.cast(gradient, tf.float32), [-1])
    largest = tf.maximum(tf.reduce_max(gradient), -tf.reduce_min(gradient))
    # A sum carries every NaN and infinity; should it overflow although all elements are finite,
    # the scale is infinite as the float32 sum over workers might be.
    finite = tf.math.is_finite(tf.reduce_sum(gradient * 0.0))
    scale = largest
    if clip_factor:
        safe = tf.where(largest > 0, largest, 1.0)
        deviation = tf.math.reduce_std(gradient / safe) * largest
        clipped = tf.cast(clip_factor, tf.float32) * deviation
        scale = tf.where(clipped > largest * 1e-6, tf.minimum(clipped, largest), largest)
    return tf.where(finite, scale, tf.constant(np.inf, tf.float32))
