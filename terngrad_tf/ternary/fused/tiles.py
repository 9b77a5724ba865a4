"""Tiles of fixed length: a static layout that lets XLA vectorize on CPUs."""

import tensorflow as tf

# XLA splits the outermost dimension among threads. Where it does not divide evenly, the compiler
# guards every iteration and vectorizes none, so the innermost dimension is kept apart and even.
TILE = 512


def num_tiles(width: int) -> int:
    """Tiles of `TILE` columns that hold `width` columns."""
    return -(-width // TILE)


def digit_plane(flat: tf.Tensor, number: int, width: int) -> tf.Tensor:
    """Elements `number * width ...` of a flat tensor, in tiles: digit `number` of all words.

    Columns beyond `width` hold elements of the next planes, and zeros beyond the end: whatever is
    made of them is to be dropped. Taking them along costs nothing, filling them in would copy.

    Args:
        flat: tensor of shape [n].
        number: which plane.
        width: columns of a plane.

    Returns:
        Tensor of shape [num_tiles(width), TILE].
    """
    size, start = flat.shape[0], number * width
    length = num_tiles(width) * TILE
    piece = flat[min(start, size) : min(start + length, size)]
    if piece.shape[0] < length:
        piece = tf.pad(piece, [[0, length - piece.shape[0]]])
    return tf.reshape(piece, [-1, TILE])
