"""Sums of replicas' codes without an exchange: rounded and added, never packed."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import quantizer
from terngrad_tf.ternary.fused import compiled, loop_rounding, partition, tiles

# Each loop makes the random words and writes its sums once; more replicas would only take longer to
# compile.
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
    levels: int = 1,
    tensors: Any = None,
) -> list[tf.Tensor]:
    """Rounds the gradients of several replicas and adds the codes.

    Every tensor is rounded as by `ternarize`. The result equals `decode` of the replicas' words
    before multiplication by the scales.

    Args:
        gradients: for each of K replicas, a list of T float16, bfloat16 or float32 tensors of equal
            static shapes.
        scales: float32 tensor [T], shared by all replicas.
        seed, step, num_replicas, rounding, levels: see `ternarize`; L is `levels`.
        replicas: K numbers in 0..num_replicas-1, integers or scalar int32 tensors.
        tensors: T integers that select each tensor's random sequence. Default 0..T-1.

    Returns:
        List of T float32 tensors of whole numbers in `-K * L .. K * L`.

    Raises:
        ValueError: an argument is out of range or a shape is not static.

    Example:
    >>> sums = sum_codes([[tf.ones([3])], [tf.ones([3])]], tf.ones([1]), seed=0, step=0,
    ...                  replicas=[0, 1], num_replicas=2)
    >>> sums[0].numpy().tolist()
    [2.0, 2.0, 2.0]
    """
    rule = quantizer.Rounding(rounding, num_replicas, levels)
    shapes = tuple(compiled.static_shape(g, "gradients") for g in gradients[0])
    dtypes = tuple(g.dtype for g in gradients[0])
    if not shapes:
        return []
    pieces = _Pieces(shapes)
    numbers = loop_rounding.arguments(scales, tensors, len(shapes), seed, step)
    # Not added to zeros from outside, which TensorFlow would hold as constants.
    sums = []
    for start in range(0, len(gradients), _REPLICAS_OF_A_LOOP):
        members = slice(start, start + _REPLICAS_OF_A_LOOP)
        ids = [compiled.scalar(replica, tf.int32) for replica in replicas[members]]
        run = _adder(shapes, dtypes, len(ids), rule)
        sums.append(run([list(g) for g in gradients[members]], numbers, ids))
    return pieces.tensors([tf.add_n(of_piece) for of_piece in zip(*sums, strict=True)])


class _Pieces:
    """T tensors of static shapes in whole tiles: large tensors separately, the rest side by side.

    The encoder's loop would copy large tensors to fill whole words.
    """

    def __init__(self, shapes):
        self._shapes = shapes
        large, _ = partition.split(shapes)
        sizes = [partition.num_elements(shape) for shape in shapes]
        self._starts = {i: sizes[i] - sizes[i] % tiles.TILE for i in large}
        rest = {i: size - self._starts.get(i, 0) for i, size in enumerate(sizes)}
        self._of_large = [partition.Columns({i: start}) for i, start in self._starts.items()]
        rest = {i: width for i, width in rest.items() if width}
        # One item or none.
        self._rest = [partition.Columns(rest)] * bool(rest)

    def cut(self, tensors):
        """Cuts float tensors into the pieces, a list of tensors `[tiles, TILE]`."""
        constant = compiled.constants()
        flat = [tf.reshape(tensor, constant((-1,))) for tensor in tensors]
        starts = self._starts.items()
        result = [tf.reshape(flat[i][:start], constant((-1, tiles.TILE))) for i, start in starts]
        rest = dict(enumerate(flat)) | {i: flat[i][start:] for i, start in starts}
        return result + [piece.join(rest) for piece in self._rest]

    def keys(self, element_keys, mix_keys, factors):
        """Returns `[tiles, 1]` tensors per piece: first number plus key, mix key, factor."""
        columns = [(piece, {}) for piece in self._of_large]
        columns += [(piece, self._starts) for piece in self._rest]
        return [
            [
                piece.spread(element_keys) + piece.firsts(starts),
                piece.spread(mix_keys),
                piece.spread(factors),
            ]
            for piece, starts in columns
        ]

    def tensors(self, pieces):
        """Inverse of `cut` for float32 pieces."""
        constant, flat = compiled.constants(), [[] for _ in self._shapes]
        for i, piece in zip(self._starts, pieces, strict=False):
            flat[i].append(tf.reshape(piece, [-1]))
        for columns in self._rest:
            for i, part in columns.split(pieces[-1]).items():
                flat[i].append(part)
        return [
            tf.reshape(partition.joined(parts), constant(shape))
            for parts, shape in zip(flat, self._shapes, strict=True)
        ]


@functools.cache
def _adder(shapes, dtypes, count, rounding):
    """Returns the function that adds the codes of `count` replicas, in one loop per piece."""
    del dtypes  # select the trace
    pieces = _Pieces(shapes)

    @compiled.compiled
    def add(gradients, keys, replicas):
        columns = tf.cast(tf.range(tiles.TILE), tf.uint32)
        codes = []
        for k, replica in enumerate(replicas):
            offset = rounding.offset(replica)
            of_pieces = zip(gradients[k], keys[k % len(keys)], strict=True)
            codes.append(
                [
                    loop_rounding.round_elements(
                        rounding, piece, first, columns, mix_keys, factors, offset
                    )
                    for piece, (first, mix_keys, factors) in of_pieces
                ]
            )
        # As floats: TensorFlow keeps int32 in a GPU's host memory.
        return [tf.cast(tf.add_n(of_piece), tf.float32) for of_piece in zip(*codes, strict=True)]

    def run(gradients, numbers, replicas):
        # Correlated replicas draw the same words.
        drawing = replicas[:1] if rounding.kind == "correlated" else replicas
        of_tensors = [loop_rounding.by_tensor(numbers, rounding, replica) for replica in drawing]
        keys = [pieces.keys(*by_tensor) for by_tensor in of_tensors]
        return add([pieces.cut(g) for g in gradients], keys, replicas)

    return tf.function(run, autograph=False)
