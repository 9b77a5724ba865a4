"""How a list of tensors is divided among compiled loops: one for each large one, one for the rest.

All loops over several tensors cut them with this module. What they cut differs, because anything
common to all would copy the gradients once more: the encoder and the decoder cut columns of words,
the sum of codes, which makes no words, columns of elements. The decoder gives each run of small
neighbours a loop of its own, since their words arrive side by side.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary.fused import tiles

# A loop of its own for a tensor saves copying it, and costs 0.1 to 0.4 s of compilation.
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
    """Columns of several tensors side by side, filled up to whole tiles.

    What differs from one tensor to the next becomes one value a column.

    Args:
        widths: dict of a tensor's position in the list to the number of its columns.
    """

    def __init__(self, widths: dict[int, int]) -> None:
        self._widths = widths
        self.members = list(widths)
        self.size = sum(widths.values())
        self.num_tiles = tiles.num_tiles(self.size)
        self._padding = self.num_tiles * tiles.TILE - self.size

    def spread(self, values: Any) -> tf.Tensor:
        """Values `[T]`, one a tensor of the list, to `[num_tiles, TILE]`, one a column."""
        positions = np.repeat(np.array([*self._widths], np.int32), [*self._widths.values()])
        return self._tiled(tf.gather(values, np.pad(positions, (0, self._padding))))

    def numbers(self, starts: dict[int, int] | None = None) -> tf.Tensor:
        """uint32 `[num_tiles, TILE]`: columns count from 0, or from the tensor's start, in each."""
        starts = starts or {}
        numbers = [
            np.arange(width, dtype=np.uint32) + np.uint32(starts.get(i, 0))
            for i, width in self._widths.items()
        ]
        return self._tiled(tf.constant(np.pad(np.concatenate(numbers), (0, self._padding))))

    def join(self, parts: Any) -> tf.Tensor:
        """Float tensors `[..., columns]`, one a member, to float32 `[..., tiles, TILE]`."""
        padding = tf.zeros([*parts[0].shape[:-1], self._padding], tf.float32)
        return self._tiled(tf.concat([tf.cast(p, tf.float32) for p in parts] + [padding], -1))

    def split(self, columns: Any) -> dict[int, tf.Tensor]:
        """A tensor `[..., columns]`, filled up or not, to the part of each member by position."""
        parts = tf.split(columns[..., : self.size], [*self._widths.values()], axis=-1)
        return dict(zip(self._widths, parts, strict=True))

    def _tiled(self, columns):
        return tf.reshape(columns, [*columns.shape[:-1], self.num_tiles, tiles.TILE])
