"""Random changes of training images, each a function of the image and a seed alone."""

from slim_data import cifar10, decoding
from slim_data.lazy import tf

CIFAR10_BRIGHTNESS = 63 / 255
CIFAR10_CONTRAST = (0.2, 1.8)


def cifar10_image(image, size, seed):
    """Returns a random part of an image, perhaps mirrored, of other brightness and contrast.

    With u, v uniform: `c = x + u`, |u| <= 63/255, then `mean(c) + v (c - mean(c))`, v in
    [0.2, 1.8), the mean taken by channel. Values are not clipped.

    Args:
        image: uint8 tensor of shape [height, width, channels].
        size: int, pixels of a side of the result.
        seed: int64 tensor of shape [2].

    Returns:
        float32 tensor of shape [size, size, channels]; without the changes of brightness and
        contrast it would be in [0, 1].
    """
    # An image is never smaller than the part to take from it.
    image = decoding.crop_or_pad(image, max(size, cifar10.SIDE))
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 4, alg="philox"))
    image = tf.image.stateless_random_crop(image, [size, size, image.shape[2]], seeds[0])
    image = tf.image.convert_image_dtype(image, tf.float32)
    image = tf.image.stateless_random_flip_left_right(image, seeds[1])
    image = tf.image.stateless_random_brightness(image, CIFAR10_BRIGHTNESS, seeds[2])
    return tf.image.stateless_random_contrast(image, *CIFAR10_CONTRAST, seeds[3])
