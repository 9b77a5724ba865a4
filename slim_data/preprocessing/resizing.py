"""Resizes and crops single images.

As in TensorFlow 2, pixels are areas with centres at half integers, so resizing does not shift an
image and commutes with mirroring. TensorFlow 1 sampled at corners. Images are not smoothed before
they shrink.
"""

from __future__ import annotations

from slim_data.common.lazy import tf


def resize_bilinear(image: tf.Tensor, height: int | tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
    """Returns a uint8 image resized, as float32 between 0 and 255."""
    # Conversion included, this is faster than resizing uint8.
    return tf.image.resize(tf.cast(image, tf.float32), [height, width])


def resize_smaller_side(image: tf.Tensor, side: int | tf.Tensor) -> tf.Tensor:
    """Returns a uint8 image as float32 with shorter side `side` and the same aspect ratio.

    The longer side is rounded down.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    shorter = tf.minimum(height, width)
    return resize_bilinear(image, height * side // shorter, width * side // shorter)


def center_crop(image: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the central `size` x `size` pixels of an image at least this large."""
    height, width = tf.unstack(tf.shape(image)[:2])
    return crop(image, (height - size) // 2, (width - size) // 2, size)


def random_crop(image: tf.Tensor, size: int, random_values: tf.Tensor) -> tf.Tensor:
    """Returns `size` x `size` pixels at a uniformly random place of an image.

    Args:
        random_values: float32 [2], uniform in [0, 1).
    """
    top, left = tf.unstack(random_offset(tf.shape(image)[:2], [size, size], random_values))
    return crop(image, top, left, size)


def random_offset(outer: tf.Tensor, inner: tf.Tensor, random_values: tf.Tensor) -> tf.Tensor:
    """Returns the uniformly random offset of a smaller extent in a larger one, 0 to outer - inner.

    Args:
        outer, inner: int32, inner <= outer.
        random_values: float32, uniform in [0, 1).
    """
    return tf.cast(random_values * tf.cast(outer - inner + 1, tf.float32), tf.int32)


def crop(image: tf.Tensor, top: tf.Tensor, left: tf.Tensor, size: int) -> tf.Tensor:
    """Returns `size` x `size` pixels of an image, given the top left corner."""
    image = image[top : top + size, left : left + size]
    image.set_shape([size, size, image.shape[2]])
    return image


def flip_left_right_if(condition: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    """Returns an image [height, width, channels], mirrored if `condition` is true."""
    return tf.cond(condition, lambda: tf.reverse(image, [1]), lambda: image)
