"""How a list of tensors is divided among compiled loops: one for each large one, one for the rest.

All loops over several tensors cut them with this module. What they cut differs, because anything
common to all would copy the gradients once more: the encoder and the decoder cut columns of words,
the sum of codes, which makes no words, columns of elements. The decoder gives each run of small
neighbours a loop of its own, since their words arrive side by side.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary.fused import tiles

# A loop of its own for a tensor saves copying it, and takes half a second to compile for each size.
LARGE = 2**20
MOST_LARGE = 16


def num_elements(shape: Sequence[int]) -> int:
    """Number of elements of a static shape."""
    return int(np.prod(shape, dtype=np.int64))


def split(shapes: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Positions of the large tensors and of the others, each in list order."""
    by_size = sorted(range(len(shapes)), key=lambda i: -num_elements(shapes[i]))
    large = sorted(i for i in by_size[:MOST_LARGE] if num_elements(shapes[i]) >= LARGE)
    return large, [i for i in range(len(shapes)) if i not in set(large)]


def runs(positions: Iterable[int]) -> list[list[int]]:
    """Ascending positions grouped into runs of neighbours."""
    result = []
    for position in positions:
        if result and result[-1][-1] == position - 1:
            result[-1].append(position)
        else:
            result.append([position])
    return result


class Columns:
    """Columns of several tensors side by side, each tensor's filled up to whole tiles.

    What differs from one tensor to the next becomes one value a tile.

    Args:
        widths: dict of a tensor's position in the list to the number of its columns.
        tile: columns of a tile.
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
        """Values `[T]`, one a tensor of the list, to `[num_tiles, 1]`, one a tile."""
        positions = np.repeat(np.array(self.members, np.int32), self._counts)[:, np.newaxis]
        if values.dtype != tf.uint32:
            return tf.gather(values, positions)
        # GPUs have no kernel that gathers uint32.
        return tf.bitcast(tf.gather(tf.bitcast(values, tf.int32), positions), tf.uint32)

    def firsts(self, starts: dict[int, int] | None = None) -> tf.Tensor:
        """uint32 `[num_tiles, 1]`: the number of each tile's first column in its tensor.

        Args:
            starts: dict of positions to the number of the tensor's first column; 0 where missing.
        """
        numbers = [
            np.arange(count, dtype=np.uint32) * np.uint32(self._tile)
            + np.uint32((starts or {}).get(i, 0))
            for i, count in zip(self.members, self._counts, strict=True)
        ]
        return tf.constant(np.concatenate(numbers)[:, np.newaxis])

    def join(self, parts: Any) -> tf.Tensor:
        """Float tensors `[..., columns]` by position to float32 `[..., num_tiles, tile]`."""
        zeros = functools.cache(functools.partial(tf.zeros, dtype=tf.float32))
        pieces = []
        for i, padding in zip(self.members, self._paddings, strict=True):
            pieces.append(tf.cast(parts[i], tf.float32))
            if padding:
                pieces.append(zeros((*parts[i].shape[:-1], padding)))
        joined = tf.concat(pieces, -1)
        return tf.reshape(joined, [*joined.shape[:-1], self.num_tiles, self._tile])

    def split(self, columns: Any) -> dict[int, tf.Tensor]:
        """Inverse of `join`, to the part of each member by position."""
        flat = tf.reshape(columns, [*columns.shape[:-2], -1])
        pairs = zip(self._widths.values(), self._paddings, strict=True)
        lengths = [length for pair in pairs for length in pair]
        return dict(zip(self.members, tf.split(flat, lengths, axis=-1)[::2], strict=True))
