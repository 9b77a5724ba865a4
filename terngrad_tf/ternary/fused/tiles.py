"""Tiles of fixed length: a static layout that XLA can vectorize on CPUs."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from terngrad_tf.ternary.fused import compiled

# XLA splits the outermost dimension among threads. If it does not divide evenly, no iteration is
# vectorized, so the innermost dimension is separate and even.
TILE = 512


def num_tiles(width: int) -> int:
    """Returns the number of tiles for `width` columns."""
    return -(-width // TILE)


def digit_planes(flat: tf.Tensor, count: int, width: int) -> list[tf.Tensor]:
    """Returns digit j of all words, elements `j * width ...`, in tiles, for each j.

    Drop the results of columns beyond `width`, which hold the next elements or zeros; masking would
    copy.
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


def pairwise(function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], tensors: Sequence) -> tf.Tensor:
    """Returns `f(f(t_1, t_2), f(t_3, t_4))` and so on, of a power of two of tensors."""
    while len(tensors) > 1:
        tensors = [function(a, b) for a, b in zip(tensors[::2], tensors[1::2], strict=True)]
    return tensors[0]
