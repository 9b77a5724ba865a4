"""AlexNet's style: random crops of images resized to 256 x 256, less the mean colour.

Source: Krizhevsky et al., *ImageNet Classification with Deep Convolutional Neural Networks*, NIPS
2012, without its colour changes, as in TernGrad's pipeline.
"""

from __future__ import annotations

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels, resizing
from slim_data.preprocessing.base import Preprocessing
from slim_data.tfrecord.encoded_image import EncodedImage

SIDE = 256


def augment(encoded: EncodedImage, size: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns a random crop of an image resized to 256 x 256, randomly mirrored, less the mean."""
    random_values = tf.random.stateless_uniform([3], seed, alg="philox")
    image = resizing.flip_left_right_if(random_values[2] < 0.5, encoded.decode())
    image = resizing.resize_bilinear(image, SIDE, SIDE)
    return channels.subtract_mean(resizing.random_crop(image, size, random_values[:2]))


def evaluate(encoded: EncodedImage, size: int) -> tf.Tensor:
    """Returns the central crop of an image resized to 256 x 256, less the mean."""
    image = resizing.resize_bilinear(encoded.decode(), SIDE, SIDE)
    return channels.subtract_mean(resizing.center_crop(image, size))


PREPROCESSING = Preprocessing(evaluate, augment, largest_size=SIDE)
