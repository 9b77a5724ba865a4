"""AlexNet's style: images of 256 x 256 pixels, random parts of them, the mean colour subtracted.

Source: Krizhevsky et al., *ImageNet Classification with Deep Convolutional Neural Networks*, NIPS
2012, without its change of colours, as TernGrad's pipeline has it.
"""

from slim_data.common.lazy import tf
from slim_data.preprocessing import channels, resizing
from slim_data.preprocessing.base import Preprocessing

SIDE = 256
# Mean red, green and blue of ImageNet's training images.
MEAN = (123.68, 116.78, 103.94)


def distort(photo, size, seed):
    """Returns a random part of an image resized to 256 x 256, perhaps mirrored, less the mean.

    Args:
        photo: `Photo`.
        size: int, pixels of a side of the result, at most 256.
        seed: int64 tensor of shape [2].

    Returns:
        float32 tensor of shape [size, size, 3]: values of 0 to 255 less `MEAN`.
    """
    draws = tf.random.stateless_uniform([3], seed, alg="philox")
    image = resizing.mirrored_if(draws[2] < 0.5, photo.pixels())
    image = resizing.bilinear(image, SIDE, SIDE)
    return subtract_mean(resizing.random_part(image, size, draws[:2]))


def evaluate(photo, size):
    """Returns the central part of an image resized to 256 x 256, less the mean.

    Args:
        photo: `Photo`.
        size: int, pixels of a side of the result, at most 256.

    Returns:
        float32 tensor of shape [size, size, 3]: values of 0 to 255 less `MEAN`.
    """
    image = resizing.bilinear(photo.pixels(), SIDE, SIDE)
    return subtract_mean(resizing.centre(image, size))


def subtract_mean(image):
    """Returns an image [height, width, 3] less `MEAN`."""
    return channels.scale_and_shift(image, [1] * 3, [-value for value in MEAN])


PREPROCESSING = Preprocessing(evaluate, distort, largest_size=SIDE)
