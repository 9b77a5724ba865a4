"""Arithmetic with one constant per channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slim_data.common.lazy import tf

# Mean red, green and blue of ImageNet's training images, from 0 to 255.
MEAN = (123.68, 116.78, 103.94)


def normalize(images: tf.Tensor, mean: Sequence[float], deviation: Sequence[float]) -> tf.Tensor:
    """Returns `(x / 255 - mean) / deviation` of float32 [..., height, width, channels]."""
    means, deviations = np.array(mean), np.array(deviation)
    return _scale_and_shift(images, 1 / (255 * deviations), -means / deviations)


def subtract_mean(image: tf.Tensor) -> tf.Tensor:
    """Returns an image [height, width, 3] less `MEAN`."""
    return _scale_and_shift(image, np.ones(3), -np.array(MEAN))


def _scale_and_shift(images, scale, shift):
    """Returns `scale x + shift`, channel by channel; all sides but the first must be known."""
    # On whole rows: broadcasting three numbers over pixels is six times as slow.
    *_, height, width, _ = images.shape
    leading = tf.shape(images)[:-3]
    rows = tf.reshape(images, tf.concat([leading, [height, -1]], axis=0))
    scales, shifts = (np.tile(x.astype(np.float32), width) for x in (scale, shift))
    if np.any(scales != 1):
        rows *= scales
    return tf.ensure_shape(tf.reshape(rows + shifts, tf.shape(images)), images.shape)
