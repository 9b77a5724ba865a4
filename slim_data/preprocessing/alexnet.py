"""AlexNet's style: images of 256 x 256 pixels, random parts of them, the mean colour subtracted.

Source: Krizhevsky et al., *ImageNet Classification with Deep Convolutional Neural Networks*, NIPS
2012, without its change of colours, as TernGrad's pipeline has it.
"""

from __future__ import annotations

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels, resizing
from slim_data.preprocessing.base import Preprocessing
from slim_data.tfrecord.encoded_image import EncodedImage

SIDE = 256


def augment(encoded: EncodedImage, size: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns a random part of an image resized to 256 x 256, perhaps mirrored, less the mean."""
    random_values = tf.random.stateless_uniform([3], seed, alg="philox")
    image = resizing.flip_left_right_if(random_values[2] < 0.5, encoded.decode())
    image = resizing.resize_bilinear(image, SIDE, SIDE)
    return channels.subtract_mean(resizing.random_crop(image, size, random_values[:2]))


def evaluate(encoded: EncodedImage, size: int) -> tf.Tensor:
    """Returns the central part of an image resized to 256 x 256, less the mean."""
    image = resizing.resize_bilinear(encoded.decode(), SIDE, SIDE)
    return channels.subtract_mean(resizing.center_crop(image, size))


PREPROCESSING = Preprocessing(evaluate, augment, largest_size=SIDE)
