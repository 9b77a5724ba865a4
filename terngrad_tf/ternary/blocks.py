"""Rows of fixed length: a static layout that lets XLA vectorize on CPUs."""

import tensorflow as tf

# XLA splits the outermost dimension among threads. Where it does not divide evenly, the compiler
# guards every iteration and vectorizes none, so the innermost dimension is kept apart and even.
ROW = 512


def num_rows(width: int) -> int:
    """Rows of `ROW` columns that hold `width` columns."""
    return -(-width // ROW)


def plane(flat: tf.Tensor, number: int, width: int) -> tf.Tensor:
    """Elements `number * width ...` of a flat tensor, as rows.

    Columns beyond `width` hold elements of the next planes, and zeros beyond the end: whatever is
    made of them is to be dropped. Taking them along costs nothing, filling them in would copy.

    Args:
        flat: tensor of shape [n].
        number: which plane.
        width: columns of a plane.

    Returns:
        Tensor of shape [num_rows(width), ROW].
    """
    size, start = flat.shape[0], number * width
    length = num_rows(width) * ROW
    piece = flat[min(start, size) : min(start + length, size)]
    if piece.shape[0] < length:
        piece = tf.pad(piece, [[0, length - piece.shape[0]]])
    return tf.reshape(piece, [num_rows(width), ROW])


def columns(width: int) -> tf.Tensor:
    """uint32 column numbers 0, 1, ... as rows, [num_rows(width), ROW]."""
    rows = num_rows(width)
    return tf.cast(tf.reshape(tf.range(rows * ROW), [rows, ROW]), tf.uint32)


def flatten(rows: tf.Tensor, width: int) -> tf.Tensor:
    """The first `width` columns as a flat tensor."""
    return tf.reshape(rows, [-1])[:width]
