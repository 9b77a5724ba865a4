"""Sums of replicas' ternary codes where nothing travels: rounded and added, never packed."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import quantizer
from terngrad_tf.ternary.fused import compiled, loop_rounding, partition, tiles

# Replicas whose gradients one loop reads. The sums are read and written once a loop, the random
# words made once; more would only take longer to compile.
_REPLICAS_OF_A_LOOP = 8


def sum_codes(
    gradients: Any,
    scales: tf.Tensor,
    *,
    seed: int,
    step: Any,
    replicas: Sequence[int],
    num_replicas: int,
    rounding: str = "correlated",
    tensors: Any = None,
) -> list[tf.Tensor]:
    """Ternarizes the gradients of several replicas and adds the codes.

    Every tensor is rounded as by `ternarize`: this is what `decode` of the replicas' words gives
    before it multiplies by the scales.

    Args:
        gradients: list of K lists of T float16, bfloat16 or float32 tensors, one list a replica;
            static shapes, the same for all replicas.
        scales: float32 tensor of shape [T], the scales shared by all replicas.
        seed, step, num_replicas, rounding: as for `ternarize`.
        replicas: K numbers in 0..num_replicas-1, Python integers or scalar int32 tensors.
        tensors: T integers that select the random sequence of each tensor. Default 0..T-1.

    Returns:
        List of T int32 tensors in -K..K.

    Raises:
        ValueError: an argument is out of range or a shape is not static.

    Example:
    >>> sums = sum_codes([[tf.ones([3])], [tf.ones([3])]], tf.ones([1]), seed=0, step=0,
    ...                  replicas=[0, 1], num_replicas=2)
    >>> sums[0].numpy().tolist()
    [2, 2, 2]
    """
    quantizer.check_rounding(rounding, num_replicas)
    shapes = tuple(compiled.static_shape(g, "gradients") for g in gradients[0])
    dtypes = tuple(g.dtype for g in gradients[0])
    if not shapes:
        return []
    pieces = _Pieces(shapes)
    numbers = loop_rounding.arguments(scales, tensors, len(shapes), seed, step)
    totals = [tf.zeros([count, tiles.TILE], tf.int32) for count in pieces.num_tiles]
    for start in range(0, len(gradients), _REPLICAS_OF_A_LOOP):
        members = slice(start, start + _REPLICAS_OF_A_LOOP)
        ids = [compiled.scalar(replica, tf.int32) for replica in replicas[members]]
        run = _adder(shapes, dtypes, len(ids), num_replicas, rounding)
        totals = run(totals, [list(g) for g in gradients[members]], numbers, ids)
    return pieces.tensors(totals)


class _Pieces:
    """Tensors cut into whole tiles: those of each large tensor, and all the rest side by side.

    Not one loop over columns of words, as in the encoder: filling large tensors up to whole words
    would copy them.

    Args:
        shapes: T static shapes.
    """

    def __init__(self, shapes):
        self._shapes = shapes
        self.large, _ = partition.split(shapes)
        sizes = [partition.num_elements(shape) for shape in shapes]
        # What is left of a large tensor after its last whole tile is short.
        self.starts = {i: sizes[i] - sizes[i] % tiles.TILE for i in self.large}
        rest = {i: size - self.starts.get(i, 0) for i, size in enumerate(sizes)}
        self.rest = partition.Columns({i: width for i, width in rest.items() if width})
        self.num_tiles = [start // tiles.TILE for start in self.starts.values()]
        self.num_tiles += [self.rest.num_tiles] * bool(self.rest.size)

    def cut(self, tensors):
        """Float tensors to a list of tensors `[tiles, TILE]`, as many as `num_tiles`."""
        flat = [tf.reshape(tensor, [-1]) for tensor in tensors]
        result = [tf.reshape(flat[i][:start], [-1, tiles.TILE]) for i, start in self.starts.items()]
        if self.rest.size:
            parts = [flat[i][self.starts.get(i, 0) :] for i in self.rest.members]
            result.append(self.rest.join(parts))
        return result

    def tensors(self, pieces):
        """Inverse of `cut` for int32 pieces."""
        flat = [[] for _ in self._shapes]
        for i, piece in zip(self.large, pieces, strict=False):
            flat[i].append(tf.reshape(piece, [-1]))
        if self.rest.size:
            for i, part in self.rest.split(tf.reshape(pieces[-1], [-1])).items():
                flat[i].append(part)
        return [
            tf.reshape(tf.concat(parts, 0) if parts else tf.zeros([0], tf.int32), shape)
            for parts, shape in zip(flat, self._shapes, strict=True)
        ]


@functools.cache
def _adder(shapes, dtypes, count, num_replicas, rounding):
    """The function that adds the codes of `count` replicas to sums, in one loop a piece."""
    del dtypes  # They select the trace.
    pieces = _Pieces(shapes)
    rest_columns = pieces.rest

    # Apart from the loop, so that XLA does not look values up again for every replica.
    @compiled.compiled
    def by_element(numbers, replica):
        element_keys, mix_keys, units = map(
            rest_columns.spread, loop_rounding.by_tensor(numbers, rounding, replica)
        )
        return element_keys + rest_columns.numbers(pieces.starts), mix_keys, units

    @compiled.compiled
    def add(totals, gradients, rest, numbers, replicas):
        totals = list(totals)
        for k, replica in enumerate(replicas):
            offset = quantizer.replica_offset(rounding, replica, num_replicas)
            element_keys, mix_keys, units = loop_rounding.by_tensor(numbers, rounding, replica)
            for p, i in enumerate(pieces.large):
                elements = tiles.column_numbers(pieces.starts[i]) + element_keys[i]
                totals[p] += loop_rounding.round_elements(
                    gradients[k][p], elements, mix_keys[i], units[i], offset
                )
            if rest_columns.size:
                totals[-1] += loop_rounding.round_elements(
                    gradients[k][-1],
                    *rest[k % len(rest)],
                    offset,  # pyright: ignore[reportCallIssue]
                )
        return totals

    def run(totals, gradients, numbers, replicas):
        rest = []
        if rest_columns.size:
            # With correlated rounding all replicas draw the same words.
            drawing = replicas[:1] if rounding == "correlated" else replicas
            rest = [by_element(numbers, replica) for replica in drawing]
        return add(totals, [pieces.cut(g) for g in gradients], rest, numbers, replicas)

    return tf.function(run, autograph=False)
