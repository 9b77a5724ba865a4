"""VGG's style: random sizes with fixed aspect ratio, random crops, less the mean colour.

Source: Simonyan and Zisserman, *Very Deep Convolutional Networks for Large-Scale Image
Recognition*, ICLR 2015, section 3.1.
"""

from __future__ import annotations

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels, resizing
from slim_data.preprocessing.base import Preprocessing
from slim_data.tfrecord.encoded_image import EncodedImage

SIDES = (256, 512)


def augment(encoded: EncodedImage, size: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns a random crop of an image of random size, randomly mirrored, less the mean.

    The shorter side is uniform among the integers from 256 to 512.
    """
    random_values = tf.random.stateless_uniform([4], seed, alg="philox")
    smallest, largest = SIDES
    side = smallest + tf.cast(random_values[3] * (largest - smallest + 1), tf.int32)
    image = resizing.flip_left_right_if(random_values[2] < 0.5, encoded.decode())
    image = resizing.random_crop(resizing.resize_smaller_side(image, side), size, random_values[:2])
    return channels.subtract_mean(image)


def evaluate(encoded: EncodedImage, size: int) -> tf.Tensor:
    """Returns the central crop of an image resized to a shorter side of 256, less the mean."""
    image = resizing.resize_smaller_side(encoded.decode(), SIDES[0])
    return channels.subtract_mean(resizing.center_crop(image, size))


PREPROCESSING = Preprocessing(evaluate, augment, largest_size=SIDES[0])
