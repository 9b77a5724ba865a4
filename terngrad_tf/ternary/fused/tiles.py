"""Tiles of fixed length: a static layout that lets XLA vectorize on CPUs."""

import tensorflow as tf

from terngrad_tf.ternary.fused import compiled

# XLA splits the outermost dimension among threads. Where it does not divide evenly, the compiler
# guards every iteration and vectorizes none, so the innermost dimension is kept apart and even.
TILE = 512


def num_tiles(width: int) -> int:
    """Tiles of `TILE` columns that hold `width` columns."""
    return -(-width // TILE)


def digit_planes(flat: tf.Tensor, count: int, width: int) -> list[tf.Tensor]:
    """Elements `j * width ...` of a flat tensor, in tiles, for each j: digit j of all words.

    Columns beyond `width` hold elements of the next planes, and zeros beyond the end: whatever is
    made of them is to be dropped. Taking them along costs nothing, filling them in would copy.

    Args:
        flat: tensor of shape [n].
        count: number of planes.
        width: columns of a plane.

    Returns:
        List of `count` tensors of shape [num_tiles(width), TILE].
    """
    constant = compiled.constants()
    size, length = flat.shape[0], num_tiles(width) * TILE
    planes = []
    for j in range(count):
        start = min(j * width, size)
        held = min(length, size - start)
        plane = tf.slice(flat, constant((start,)), constant((held,)))
        if held < length:
            plane = tf.pad(plane, constant(((0, length - held),)))
        planes.append(tf.reshape(plane, constant((-1, TILE))))
    return planes
