"""The style of residual networks for CIFAR-10: random shifts by 4 pixels, mirrored.

Source: He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, section 4.2.
"""

import numpy as np

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels
from slim_data.preprocessing.base import Preprocessing
from slim_data.preprocessing.cropping import random_crop_and_mirror

PADDING = 4
# Of the training images' channels, values in [0, 1].
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)


def distort(images, size, draws):
    """Returns a random part of each image after zeros were put around it, perhaps mirrored.

    Args:
        images: uint8 tensor of shape [n, height, width, 3].
        size: int, pixels of a side; images are cropped or padded to it before the 4 pixels of
            zeros on each side.
        draws: float32 tensor of shape [n, 3], uniform in [0, 1).

    Returns:
        float32 tensor of shape [n, size, size, 3], normalized by channel as by `evaluate`.
    """
    padded = size + 2 * PADDING
    images = tf.image.resize_with_crop_or_pad(images, size, size)
    images = tf.image.resize_with_crop_or_pad(images, padded, padded)
    return _normalize(random_crop_and_mirror(images, size, draws))


def evaluate(images, size):
    """Returns `(x / 255 - mean) / deviation` by channel, of the central part of each image.

    Args:
        images: uint8 tensor of shape [n, height, width, 3].
        size: int, pixels of a side of the result; zeros are put around smaller images.

    Returns:
        float32 tensor of shape [n, size, size, 3].
    """
    return _normalize(tf.image.resize_with_crop_or_pad(images, size, size))


def _normalize(images):
    mean, deviation = np.array(MEAN), np.array(DEVIATION)
    images = tf.cast(images, tf.float32)
    return channels.scale_and_shift(images, 1 / (255 * deviation), -mean / deviation)


PREPROCESSING = Preprocessing(evaluate, distort, num_draws=3)
