"""The style of residual networks for ImageNet: crops of random size and aspect ratio.

Source: He et al., *Deep Residual Learning for Image Recognition*, CVPR 2016, with the crops of
Szegedy et al., CVPR 2015, as in the tutorials of MindSpore and PyTorch.
"""

from __future__ import annotations

import math

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels, resizing
from slim_data.preprocessing.base import Preprocessing
from slim_data.tfrecord.encoded_image import EncodedImage

AREA = (0.08, 1.0)
ASPECT_RATIO = (0.75, 1.333)
MAX_ATTEMPTS = 10
SIDE = 256
# Statistics of red, green and blue in ImageNet's training images, for values in [0, 1].
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def augment(encoded: EncodedImage, size: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns a random crop of an image, resized bilinearly, randomly mirrored, normalized."""
    random_values = tf.random.stateless_uniform([1 + 4 * MAX_ATTEMPTS], seed, alg="philox")
    window = random_crop_box(encoded.size(), tf.reshape(random_values[1:], [MAX_ATTEMPTS, 4]))
    image = encoded.crop(*tf.unstack(window))
    image = resizing.flip_left_right_if(random_values[0] < 0.5, image)
    return channels.normalize(resizing.resize_bilinear(image, size, size), MEAN, DEVIATION)


def random_crop_box(size: tf.Tensor, random_values: tf.Tensor) -> tf.Tensor:
    """Returns top, left, height and width of a random crop of an image, int32 [4].

    With u, v uniform, the area is `0.08 + 0.92 u` of the image's, width / height is
    `0.75 (1.333 / 0.75)^v`, and the place is uniform. The first of 10 attempts that fits is taken;
    if none fits, the largest central crop with an allowed aspect ratio.

    Args:
        size: the image's height and width, int32 [2].
        random_values: float32 [10, 4], uniform in [0, 1).
    """
    outer = tf.cast(size, tf.float32)
    narrowest, widest = ASPECT_RATIO
    area = outer[0] * outer[1] * (AREA[0] + (AREA[1] - AREA[0]) * random_values[:, 0])
    ratio = narrowest * tf.exp(math.log(widest / narrowest) * random_values[:, 1])
    inner = tf.round(tf.sqrt(tf.stack([area / ratio, area * ratio], axis=1)))
    fits = tf.reduce_all(tf.logical_and(inner >= 1, inner <= outer), axis=1)
    number = tf.argmax(fits)
    inner = tf.cast(inner[number], tf.int32)
    place = resizing.random_offset(size, inner, random_values[number, 2:])

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


def evaluate(encoded: EncodedImage, size: int) -> tf.Tensor:
    """Returns the central crop of an image resized to a shorter side of 256, normalized."""
    image = resizing.resize_smaller_side(encoded.decode(), SIDE)
    return channels.normalize(resizing.center_crop(image, size), MEAN, DEVIATION)


PREPROCESSING = Preprocessing(evaluate, augment, largest_size=SIDE)
