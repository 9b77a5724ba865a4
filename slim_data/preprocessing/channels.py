"""Arithmetic with one constant per channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slim_data.common.lazy import tf

# Mean red, green and blue of ImageNet's training images, from 0 to 255.
MEAN = (123.68, 116.78, 103.94)


def normalize(
    images: tf.Tensor, scale: Sequence[float] | np.ndarray, shift: Sequence[float] | np.ndarray
) -> tf.Tensor:
    """Returns `scale x + shift`, channel by channel, of float32 [..., height, width, channels].

    Height, width and channels must be known.
    """
    # On whole rows: broadcasting three numbers over pixels is six times as slow.
    *_, height, width, _ = images.shape
    leading = tf.shape(images)[:-3]
    rows = tf.reshape(images, tf.concat([leading, [height, -1]], axis=0))
    scales, shifts = (np.tile(np.asarray(x, np.float32), width) for x in (scale, shift))
    if np.any(scales != 1):
        rows *= scales
    return tf.ensure_shape(tf.reshape(rows + shifts, tf.shape(images)), images.shape)


def subtract_mean(image: tf.Tensor) -> tf.Tensor:
    """Returns an image [height, width, 3] less `MEAN`."""
    return normalize(image, [1] * 3, [-value for value in MEAN])
