"""CifarNet's style: random crops, mirroring, brightness and contrast in training."""

from __future__ import annotations

from slim_data.common.lazy import tf
from slim_data.preprocessing.base import Preprocessing
from slim_data.preprocessing.cropping import random_crop_and_flip

BRIGHTNESS = 63 / 255
CONTRAST = (0.2, 1.8)


def augment(images: tf.Tensor, size: int, random_values: tf.Tensor) -> tf.Tensor:
    """Returns the images of `augment_pixels`, standardized as by `evaluate`."""
    return tf.image.per_image_standardization(augment_pixels(images, size, random_values))


def augment_pixels(images: tf.Tensor, size: int, random_values: tf.Tensor) -> tf.Tensor:
    """Returns a random crop of each image, randomly mirrored, with random brightness and contrast.

    With x in [0, 1] and u, v uniform: `c = x + u`, |u| <= 63/255, then `mean(c) + v (c - mean(c))`,
    v in [0.2, 1.8), with a mean per channel. Values are not clipped.

    Args:
        images: uint8 [n, height, width, channels].
        size: height and width of the float32 result. Smaller images are padded with zeros first.
        random_values: float32 [n, 5], uniform in [0, 1).
    """
    height, width = images.shape[1:3]
    images = tf.image.resize_with_crop_or_pad(images, max(size, height), max(size, width))
    images = random_crop_and_flip(images, size, random_values)
    images = tf.image.convert_image_dtype(images, tf.float32)
    brightness, factor = tf.unstack(random_values[:, 3:, None, None, None], axis=1)
    images += (2 * brightness - 1) * BRIGHTNESS
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    lowest, highest = CONTRAST
    return mean + (lowest + (highest - lowest) * factor) * (images - mean)


def evaluate(images: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the central crop of each image, zero-padded if smaller, standardized.

    The result is `(x - mean(x)) / max(std(x), 1 / sqrt(n))` for each image x of n values.
    """
    images = tf.image.resize_with_crop_or_pad(images, size, size)
    return tf.image.per_image_standardization(tf.image.convert_image_dtype(images, tf.float32))


PREPROCESSING = Preprocessing(evaluate, augment, num_random_values=5)
