"""LeNet's style: values from -1 to 1, nothing random."""

from __future__ import annotations

from slim_data.common.lazy import tf
from slim_data.preprocessing.base import Preprocessing


def evaluate(images: tf.Tensor, size: int) -> tf.Tensor:
    """Returns `2 (x / 255 - 0.5)` of the central crop; smaller images are padded with -1."""
    images = tf.image.resize_with_crop_or_pad(images, size, size)
    return tf.cast(images, tf.float32) * (2 / 255) - 1.0


PREPROCESSING = Preprocessing(evaluate)
