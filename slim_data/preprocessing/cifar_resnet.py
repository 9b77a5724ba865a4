"""The style of residual networks for CIFAR-10: random shifts by up to 4 pixels, mirroring.

Source: He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, section 4.2.
"""

from __future__ import annotations

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels
from slim_data.preprocessing.base import Preprocessing
from slim_data.preprocessing.cropping import random_crop_and_flip

PADDING = 4
# Statistics of the training images' channels, for values in [0, 1].
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)


def augment(images: tf.Tensor, size: int, random_values: tf.Tensor) -> tf.Tensor:
    """Returns a random crop of each zero-padded image, randomly mirrored."""
    padded = size + 2 * PADDING
    images = tf.image.resize_with_crop_or_pad(images, size, size)
    images = tf.image.resize_with_crop_or_pad(images, padded, padded)
    return _normalize(random_crop_and_flip(images, size, random_values))


def evaluate(images: tf.Tensor, size: int) -> tf.Tensor:
    """Returns `(x / 255 - mean) / deviation` by channel, for the central crop of each image."""
    return _normalize(tf.image.resize_with_crop_or_pad(images, size, size))


def _normalize(images):
    return channels.normalize(tf.cast(images, tf.float32), MEAN, DEVIATION)


PREPROCESSING = Preprocessing(evaluate, augment, num_random_values=3)
