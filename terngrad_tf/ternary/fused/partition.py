"""Divides a list of tensors among compiled loops: one per large tensor, one for the rest.

Encoder and decoder divide columns of words; the sum of codes, without words, divides columns of
elements: a common layout would copy the gradients. The decoder has a loop for each run of small
neighbours, whose words arrive side by side.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary.fused import tiles

# A separate loop avoids a copy, but each size takes half a second to compile.
LARGE = 2**20
MOST_LARGE = 16


def num_elements(shape: Sequence[int]) -> int:
    """Returns the number of elements of a static shape.

    Raises:
        ValueError: TensorFlow's 32-bit positions do not reach all elements.
    """
    number = math.prod(shape)
    if number >= 2**31:
        raise ValueError(
            f"a tensor to round must have fewer than 2**31 elements. Received: shape={list(shape)}"
        )
    return number


def split(shapes: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Returns the positions of large and of other tensors, in list order."""
    by_size = sorted(range(len(shapes)), key=lambda i: -num_elements(shapes[i]))
    large = sorted(i for i in by_size[:MOST_LARGE] if num_elements(shapes[i]) >= LARGE)
    return large, [i for i in range(len(shapes)) if i not in set(large)]


def runs(positions: Iterable[int]) -> list[list[int]]:
    """Groups ascending positions into runs of neighbours."""
    result = []
    for position in positions:
        if result and result[-1][-1] == position - 1:
            result[-1].append(position)
        else:
            result.append([position])
    return result


def joined(vectors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Concatenates float32 vectors, if any."""
    if not vectors:
        return tf.zeros([0], tf.float32)
    return vectors[0] if len(vectors) == 1 else tf.concat(vectors, 0)


class Columns:
    """Columns of several tensors side by side, each tensor's padded to whole tiles.

    Args:
        widths: number of columns by the tensor's position in the list.
    """

    def __init__(self, widths: dict[int, int], tile: int = tiles.TILE) -> None:
        self._widths, self._tile = widths, tile
        self.members = list(widths)
        self._counts = [-(-width // tile) for width in widths.values()]
        self._paddings = [
            count * tile - width for count, width in zip(self._counts, widths.values(), strict=True)
        ]
        self.num_tiles = sum(self._counts)

    def spread(self, values: Any) -> tf.Tensor:
        """Spreads values `[T]`, one per tensor, to `[num_tiles, 1]`."""
        positions = np.repeat(np.array(self.members, np.int32), self._counts)[:, np.newaxis]
        if values.dtype != tf.uint32:
            return tf.gather(values, positions)
        # GPUs have no kernel that gathers uint32.
        return tf.bitcast(tf.gather(tf.bitcast(values, tf.int32), positions), tf.uint32)

    def firsts(self, starts: dict[int, int] | None = None) -> tf.Tensor:
        """Returns the number of each tile's first column in its tensor, uint32 `[num_tiles, 1]`.

        Args:
            starts: number of a tensor's first column, by position. Default 0.
        """
        numbers = [
            np.arange(count, dtype=np.uint32) * np.uint32(self._tile)
            + np.uint32((starts or {}).get(i, 0))
            for i, count in zip(self.members, self._counts, strict=True)
        ]
        return tf.constant(np.concatenate(numbers)[:, np.newaxis])

    def join(self, parts: Any) -> tf.Tensor:
        """Joins float tensors `[..., columns]` by position to float32 `[..., num_tiles, tile]`."""
        zeros = functools.cache(functools.partial(tf.zeros, dtype=tf.float32))
        pieces = []
        for i, padding in zip(self.members, self._paddings, strict=True):
            pieces.append(tf.cast(parts[i], tf.float32))
            if padding:
                pieces.append(zeros((*parts[i].shape[:-1], padding)))
        joined = tf.concat(pieces, -1)
        return tf.reshape(joined, [*joined.shape[:-1], self.num_tiles, self._tile])

    def split(self, columns: Any) -> dict[int, tf.Tensor]:
        """Inverse of `join`; returns the parts by position."""
        flat = tf.reshape(columns, [*columns.shape[:-2], -1])
        pairs = zip(self._widths.values(), self._paddings, strict=True)
        lengths = [length for pair in pairs for length in pair]
        return dict(zip(self.members, tf.split(flat, lengths, axis=-1)[::2], strict=True))
