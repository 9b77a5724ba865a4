"""The style of residual networks for ImageNet: random parts of random size and proportions.

Source: He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, with the parts of
Szegedy et al., CVPR 2015, as the tutorials of MindSpore and PyTorch have it.
"""

import math

import numpy as np

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels, resizing
from slim_data.preprocessing.base import Preprocessing

AREA = (0.08, 1.0)
ASPECT_RATIO = (0.75, 1.333)
MAX_ATTEMPTS = 10
SIDE = 256
# Of red, green and blue in ImageNet's training images, values in [0, 1].
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def distort(photo, size, seed):
    """Returns a random part of an image, resized bilinearly, perhaps mirrored, normalized.

    Args:
        photo: `Photo`.
        size: int, pixels of a side of the result, at most 256.
        seed: int64 tensor of shape [2].

    Returns:
        float32 tensor of shape [size, size, 3]: `(x / 255 - mean) / deviation` by channel.
    """
    draws = tf.random.stateless_uniform([1 + 4 * MAX_ATTEMPTS], seed, alg="philox")
    window = random_window(photo.size(), tf.reshape(draws[1:], [MAX_ATTEMPTS, 4]))
    image = photo.window(*tf.unstack(window))
    image = resizing.mirrored_if(draws[0] < 0.5, image)
    return _normalize(resizing.bilinear(image, size, size))


def random_window(size, draws):
    """Returns top, left, height and width of a random part of an image, int32 [4].

    With u, v uniform the area is `0.08 + 0.92 u` of the image's, width / height is
    `0.75 (1.333 / 0.75)^v`, and the place is even at random. The first of 10 attempts that fits
    counts; if none does, it is the largest central part whose proportions are allowed.

    Args:
        size: int32 tensor of shape [2], the image's height and width.
        draws: float32 tensor of shape [10, 4], uniform in [0, 1).
    """
    outer = tf.cast(size, tf.float32)
    narrowest, widest = ASPECT_RATIO
    area = outer[0] * outer[1] * (AREA[0] + (AREA[1] - AREA[0]) * draws[:, 0])
    ratio = narrowest * tf.exp(math.log(widest / narrowest) * draws[:, 1])
    inner = tf.round(tf.sqrt(tf.stack([area / ratio, area * ratio], axis=1)))
    fits = tf.reduce_all(tf.logical_and(inner >= 1, inner <= outer), axis=1)
    number = tf.argmax(fits)
    inner = tf.cast(inner[number], tf.int32)
    place = resizing.random_place(size, inner, draws[number, 2:])

    proportion = outer[1] / outer[0]
    most = tf.stack(
        [
            tf.where(proportion < narrowest, tf.round(outer[1] / narrowest), outer[0]),
            tf.where(proportion > widest, tf.round(outer[0] * widest), outer[1]),
        ]
    )
    most = tf.cast(most, tf.int32)
    return tf.where(
        tf.reduce_any(fits),
        tf.concat([place, inner], axis=0),
        tf.concat([(size - most) // 2, most], axis=0),
    )


def evaluate(photo, size):
    """Returns the central part of an image whose shorter side is made 256, normalized.

    Args:
        photo: `Photo`.
        size: int, pixels of a side of the result, at most 256.

    Returns:
        float32 tensor of shape [size, size, 3]: `(x / 255 - mean) / deviation` by channel.
    """
    return _normalize(resizing.centre(resizing.short_side(photo.pixels(), SIDE), size))


def _normalize(image):
    mean, deviation = np.array(MEAN), np.array(DEVIATION)
    return channels.scale_and_shift(image, 1 / (255 * deviation), -mean / deviation)


PREPROCESSING = Preprocessing(evaluate, distort, largest_size=SIDE)
