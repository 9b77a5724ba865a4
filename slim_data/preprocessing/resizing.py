"""Sizes and parts of single images.

Resizing takes TensorFlow 2's samples: pixels are areas, their centres at half integers, so that an
image does not shift when its size changes, and mirroring and resizing commute. TensorFlow 1
took the corners of pixels for their places. Which one makes no difference to training, but
networks trained elsewhere today expect the former. Nothing is smoothed before it is made smaller.
"""

from __future__ import annotations

from slim_data.common.lazy import tf


def resize_bilinear(image: tf.Tensor, height: int | tf.Tensor, width: int | tf.Tensor) -> tf.Tensor:
    """Returns a uint8 image as float32 of another size, between 0 and 255."""
    # TensorFlow resizes float32 faster than uint8, by more than the conversion takes.
    return tf.image.resize(tf.cast(image, tf.float32), [height, width])


def resize_smaller_side(image: tf.Tensor, side: int | tf.Tensor) -> tf.Tensor:
    """Returns a uint8 image as float32 whose shorter side is `side`, its proportions kept.

    The longer side is rounded down.

    Args:
        image: uint8 tensor of shape [height, width, channels].
        side: int, or int32 scalar.
    """
    height, width = tf.unstack(tf.shape(image)[:2])
    shorter = tf.minimum(height, width)
    return resize_bilinear(image, height * side // shorter, width * side // shorter)


def center_crop(image: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the central `size` x `size` pixels of an image that is no smaller."""
    height, width = tf.unstack(tf.shape(image)[:2])
    return crop(image, (height - size) // 2, (width - size) // 2, size)


def random_crop(image: tf.Tensor, size: int, random_values: tf.Tensor) -> tf.Tensor:
    """Returns `size` x `size` pixels of an image that is no smaller, placed evenly at random.

    Args:
        image: tensor of shape [height, width, channels].
        size: int.
        random_values: float32 tensor of shape [2], uniform in [0, 1).
    """
    top, left = tf.unstack(random_offset(tf.shape(image)[:2], [size, size], random_values))
    return crop(image, top, left, size)


def random_offset(outer: tf.Tensor, inner: tf.Tensor, random_values: tf.Tensor) -> tf.Tensor:
    """Returns where something begins that lies evenly at random within something larger.

    Args:
        outer, inner: int32 tensors of the same shape, inner <= outer.
        random_values: float32 tensor of this shape, uniform in [0, 1).

    Returns:
        int32 tensor, from 0 to outer - inner.
    """
    return tf.cast(random_values * tf.cast(outer - inner + 1, tf.float32), tf.int32)


def crop(image: tf.Tensor, top: tf.Tensor, left: tf.Tensor, size: int) -> tf.Tensor:
    """Returns `size` x `size` pixels of an image from a place on."""
    image = image[top : top + size, left : left + size]
    image.set_shape([size, size, image.shape[2]])
    return image


def flip_left_right_if(condition: tf.Tensor, image: tf.Tensor) -> tf.Tensor:
    """Returns an image [height, width, channels] with left and right exchanged, or as it is."""
    return tf.cond(condition, lambda: tf.reverse(image, [1]), lambda: image)
