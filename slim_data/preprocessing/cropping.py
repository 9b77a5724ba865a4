"""Random crops of a batch of images."""

from __future__ import annotations

from slim_data.common.lazy import tf


def random_crop_and_flip(images: tf.Tensor, size: int, random_values: tf.Tensor) -> tf.Tensor:
    """Returns a crop of each image at a uniformly random place, mirrored with probability 1/2.

    Args:
        images: [n, height, width, channels].
        size: height and width of the result; at most those of the images.
        random_values: float32 [n, 3] or wider, in [0, 1): vertical offset, horizontal offset, and
            mirrored if less than a half.
    """
    num_places = tf.constant([images.shape[1] - size + 1, images.shape[2] - size + 1], tf.float32)
    begin = tf.cast(random_values[:, :2] * num_places, tf.int32)
    steps = tf.range(size)
    rows = begin[:, :1] + steps
    mirrored = random_values[:, 2:3] < 0.5
    columns = begin[:, 1:] + tf.where(mirrored, steps[::-1], steps)
    images = tf.gather(images, rows, axis=1, batch_dims=1)
    return tf.gather(images, columns, axis=2, batch_dims=1)
