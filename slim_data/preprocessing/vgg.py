"""VGG's style: random sizes that keep proportions, random parts, the mean colour subtracted.

Source: Simonyan and Zisserman, *Very Deep Convolutional Networks for Large-Scale Image
Recognition*, ICLR 2015, section 3.1.
"""

from slim_data.common.lazy import tf
from slim_data.preprocessing import resizing
from slim_data.preprocessing.alexnet import subtract_mean
from slim_data.preprocessing.base import Preprocessing

SIDES = (256, 512)


def distort(photo, size, seed):
    """Returns a random part of an image of random size, perhaps mirrored, less the mean.

    The shorter side becomes any integer from 256 to 512 with equal probability.

    Args:
        photo: `Photo`.
        size: int, pixels of a side of the result, at most 256.
        seed: int64 tensor of shape [2].

    Returns:
        float32 tensor of shape [size, size, 3]: values of 0 to 255 less the mean colour.
    """
    draws = tf.random.stateless_uniform([4], seed, alg="philox")
    smallest, largest = SIDES
    side = smallest + tf.cast(draws[3] * (largest - smallest + 1), tf.int32)
    image = resizing.mirrored_if(draws[2] < 0.5, photo.pixels())
    image = resizing.random_part(resizing.short_side(image, side), size, draws[:2])
    return subtract_mean(image)


def evaluate(photo, size):
    """Returns the central part of an image whose shorter side is made 256, less the mean.

    Args:
        photo: `Photo`.
        size: int, pixels of a side of the result, at most 256.

    Returns:
        float32 tensor of shape [size, size, 3]: values of 0 to 255 less the mean colour.
    """
    image = resizing.short_side(photo.pixels(), SIDES[0])
    return subtract_mean(resizing.centre(image, size))


PREPROCESSING = Preprocessing(evaluate, distort, largest_size=SIDES[0])
