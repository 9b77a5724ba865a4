"""Random parts of the images of a batch."""

from __future__ import annotations

from slim_data.common.lazy import tf


def random_crop_and_flip(images: tf.Tensor, size: int, random_values: tf.Tensor) -> tf.Tensor:
    """Returns a part of each image, placed evenly at random, mirrored in half of the cases.

    Args:
        images: tensor of shape [n, height, width, channels].
        size: int, pixels of a side of the result; at most height and width.
        random_values: float32 tensor of shape [n, 3] or wider, in [0, 1): from top, from left, and
            mirrored where it is less than a half.

    Returns:
        Tensor of shape [n, size, size, channels].
    """
    num_places = tf.constant([images.shape[1] - size + 1, images.shape[2] - size + 1], tf.float32)
    begin = tf.cast(random_values[:, :2] * num_places, tf.int32)
    steps = tf.range(size)
    rows = begin[:, :1] + steps
    mirrored = random_values[:, 2:3] < 0.5
    columns = begin[:, 1:] + tf.where(mirrored, steps[::-1], steps)
    images = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(images, columns, axis=2, batch_dims=1)
