"""Rotates lists of tensors like `ternary.rotation`, in few passes, by matrix products.

XLA has no fast Hadamard transform; products on both sides of a block as a square are fastest.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import random_bits, rotation
from terngrad_tf.ternary.fused import compiled, partition, tiles

# Parts of a block whose squares are added elementwise.
_PLANES = 16
# From this size on, two-sided products take less arithmetic.
_TWO_SIDED = 256
# Below these, integers are exact: in float32, and in GPUs' rounding before a product.
_EXACT, _EXACT_ON_GPUS = 2**24, 2**11


class Rotation:
    """T tensors as vectors of rotated blocks, and back.

    The whole blocks of a large tensor form a vector of their own, without a copy. All other blocks
    form one more vector, the largest first.

    Args:
        shapes: T static shapes.
        levels: L of the codes to which elements are rounded.
        num_replicas: N, the number of replicas whose codes are added.

    Example:
    >>> rotation = Rotation([[1000], [3]], levels=1)
    >>> rotation.sizes, rotation.num_blocks
    ([1040], 2)
    """

    def __init__(self, shapes: Sequence[Sequence[int]], levels: int, num_replicas: int = 1) -> None:
        self._shapes = [tuple(shape) for shape in shapes]
        self._levels = levels
        self._bound = levels * num_replicas
        self._vectors = _vectors(tuple(partition.num_elements(shape) for shape in self._shapes))
        # Block size and count of each run of equal blocks.
        self._runs = [
            (size, _num_blocks(parts)) for vector in self._vectors for size, parts in vector.items()
        ]
        self._ends = np.cumsum([0, *(count for _, count in self._runs)]).tolist()

    @property
    def sizes(self) -> list[int]:
        """Number of elements of each vector, including padding."""
        return [
            sum(size * _num_blocks(parts) for size, parts in vector.items())
            for vector in self._vectors
        ]

    @property
    def num_blocks(self) -> int:
        """Number of blocks of all vectors, each with a scale."""
        return self._ends[-1]

    def measure(self, tensors: Sequence[Any]) -> tf.Tensor:
        """Returns a replica's own scales and concentrations, float32 `[2, num_blocks]`.

        Args:
            tensors: T float16, bfloat16 or float32 tensors.
        """
        if not self._runs:
            return tf.zeros([2, 0], tf.float32)
        of_runs = _measure(self._levels)(self._blocks(tensors))
        return tf.concat(of_runs, 1)

    def rotate(
        self,
        tensors: Sequence[Any],
        measured: tf.Tensor,
        scales: tf.Tensor,
        *,
        seed: int,
        step: Any,
        tensor: int,
    ) -> list[tf.Tensor]:
        """Returns rotated vectors in units of the scales, to be rounded with a scale of 1.

        Args:
            tensors: T float16, bfloat16 or float32 tensors.
            measured: result of `measure` for the tensors.
            scales: float32 tensor [num_blocks], shared by all replicas.
            seed, step: as in `ternarize`.
            tensor: index that selects the random signs.
        """
        if not self._runs:
            return [partition.joined([])]
        factors = tf.split(_factors(self._levels)(scales, measured), self._counts())
        keys = self._keys(seed, step, tensor)
        turned = _scale(self._blocks(tensors), factors, *keys)
        rotated = iter([_product(blocks, normalized=True) for blocks in turned])
        return [
            partition.joined([tf.reshape(next(rotated), [-1]) for _ in vector])
            for vector in self._vectors
        ]

    def rotate_back(
        self,
        vectors: Sequence[tf.Tensor],
        scales: tf.Tensor,
        dtypes: Sequence[tf.DType],
        *,
        seed: int,
        step: Any,
        tensor: int,
    ) -> list[tf.Tensor]:
        """Returns the T tensors that sums of codes represent.

        The bits are the same on all processors: products add integers that float32 can hold.

        Args:
            vectors: float32 tensors with the lengths `sizes`: sums of the replicas' codes.
            scales: float32 tensor [num_blocks]. Blocks with a non-finite scale become NaN.
            dtypes: T floating-point types.
            seed, step, tensor: as in `rotate`.
        """
        turned = []
        for vector, parts in zip(vectors, self._vectors, strict=True):
            lengths = [size * _num_blocks(of_size) for size, of_size in parts.items()]
            for size, run in zip(parts, _split(vector, lengths), strict=True):
                turned.append(_product(tf.reshape(run, [-1, size]), bound=self._bound))
        blocks = []
        if turned:
            of_runs = tf.split(scales, self._counts())
            keys = self._keys(seed, step, tensor)
            blocks = _unscale(self._levels)(turned, of_runs, *keys)
        flat, runs = [], iter(blocks)
        for parts in self._vectors:
            flat.append(partition.joined([tf.reshape(next(runs), [-1]) for _ in parts]))
        return [
            tf.cast(tf.reshape(partition.joined(pieces), shape), dtype)
            for pieces, shape, dtype in zip(self.split(flat), self._shapes, dtypes, strict=True)
        ]

    def split(self, values: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        """Splits values like the vectors into lists of vectors, one per tensor."""
        pieces = []
        for vector, parts in zip(values, self._vectors, strict=True):
            lengths = [size * part.num_blocks for size in parts for part in parts[size]]
            pieces += _split(vector, lengths)
        for i, (part, piece) in enumerate(zip(self._parts, pieces, strict=True)):
            if part.num_elements < piece.shape[0]:
                pieces[i] = tf.slice(piece, [0], [part.num_elements])
        return self._by_tensor(pieces)

    @property
    def tensors_of_blocks(self) -> list[int]:
        """The tensor's number of each block."""
        return [part.tensor for part in self._parts for _ in range(part.num_blocks)]

    def spread_to_blocks(self, values: tf.Tensor) -> tf.Tensor:
        """Returns a value per block, float32 `[num_blocks]`, from one per vector."""
        of_vectors = zip(tf.unstack(values), self._vectors, strict=True)
        return partition.joined(
            [tf.fill([sum(map(_num_blocks, parts.values()))], v) for v, parts in of_vectors]
        )

    def split_blocks(self, values: tf.Tensor) -> list[tf.Tensor]:
        """Splits a value per block by tensor, in the order of the tensor's elements."""
        pieces = _split(values, [part.num_blocks for part in self._parts])
        return [partition.joined(of_tensor) for of_tensor in self._by_tensor(pieces)]

    @property
    def _parts(self):
        return [part for vector in self._vectors for parts in vector.values() for part in parts]

    def _by_tensor(self, pieces):
        """Returns the pieces, one per part, of each tensor in the order of its elements."""
        result = [{} for _ in self._shapes]
        for part, piece in zip(self._parts, pieces, strict=True):
            result[part.tensor][part.start] = piece
        return [[of_tensor[start] for start in sorted(of_tensor)] for of_tensor in result]

    def _counts(self):
        return [count for _, count in self._runs]

    def _keys(self, seed, step, tensor):
        return _keys(
            compiled.scalar(seed, tf.int64),
            compiled.scalar(step, tf.int64),
            compiled.scalar(tensor, tf.int32),
        )

    def _blocks(self, tensors):
        """Returns float32 blocks `[count, size]` of each run."""
        # Not compiled: XLA lacks float16 where a processor cannot convert it.
        flat = [tf.cast(tf.reshape(tensor, [-1]), tf.float32) for tensor in tensors]
        result = []
        for vector in self._vectors:
            for size, parts in vector.items():
                pieces = [part.of(flat[part.tensor], size) for part in parts]
                result.append(tf.reshape(partition.joined(pieces), [-1, size]))
        return result


@dataclasses.dataclass(frozen=True)
class _Part:
    """Blocks of one size of a tensor, from a start."""

    tensor: int
    start: int
    num_elements: int
    num_blocks: int

    def of(self, flat, size):
        piece = flat
        if self.num_elements < flat.shape[0]:
            piece = tf.slice(flat, [self.start], [self.num_elements])
        padding = size * self.num_blocks - self.num_elements
        return tf.pad(piece, [[0, padding]]) if padding else piece


@functools.cache
def _vectors(sizes):
    """Returns, for each vector, parts of tensors by block size, largest first."""
    large, _ = partition.split([[size] for size in sizes])
    result, small = [], {}
    for tensor, num_elements in enumerate(sizes):
        start = 0
        for size, blocks in itertools.groupby(rotation.block_sizes(num_elements)):
            count = len(list(blocks))
            held = min(size * count, num_elements - start)
            part = _Part(tensor, start, held, count)
            if tensor in large and size == rotation.LARGEST_BLOCK:
                result.append({size: [part]})
            else:
                small.setdefault(size, []).append(part)
            start += held
    # Tensors without elements form one empty vector.
    return result + [dict(sorted(small.items(), reverse=True))] * bool(small or not result)


def _num_blocks(parts):
    return sum(part.num_blocks for part in parts)


def _split(vector, lengths):
    return tf.split(vector, lengths) if lengths else []


@functools.cache
def _measure(levels):
    """Returns a function of the runs' blocks to scales and concentrations `[2, count]`."""

    @compiled.compiled
    def sums(runs):
        return [_power_sums(blocks) for blocks in runs]

    @compiled.compiled
    def scales(sums, runs):
        result = []
        for of_run, blocks in zip(sums, runs, strict=True):
            squares, fourths = tf.math.real(of_run), tf.math.imag(of_run)
            size = blocks.shape[1]
            result.append(
                tf.stack(rotation.scales_and_concentrations(squares, fourths, size, levels))
            )
        return result

    def measure(runs):
        # XLA would add these on one thread.
        return scales([tf.reduce_sum(partial, 1) for partial in sums(runs)], runs)

    return measure


def _power_sums(blocks):
    """Returns `sum x^2 + i sum x^4` of each block, over the elements at equal places of its parts.

    XLA computes complex numbers in one pass; float64 holds all fourth powers of float32.
    """
    count, size = blocks.shape
    planes = min(_PLANES, size)
    parts = tf.reshape(blocks, [count, planes, size // planes])
    squares = [tf.square(tf.cast(part, tf.float64)) for part in tf.unstack(parts, axis=1)]
    return tf.complex(
        tiles.pairwise(tf.add, squares), tiles.pairwise(tf.add, [tf.square(s) for s in squares])
    )


@functools.cache
def _factors(levels):
    @compiled.compiled
    def factors(scales, measured):
        return rotation.factors(scales, measured[0], measured[1], levels)

    return factors


@compiled.compiled
def _keys(seed, step, tensor):
    return rotation.sign_keys(seed, step, tensor)


def _signs_of_runs(runs, element_key, mix_key):
    """Returns `rotation.sign_bits` of all runs' elements, numbered consecutively."""
    first, result = 0, []
    for blocks in runs:
        numbers = random_bits.numbers_from(
            element_key + tf.constant(first & 0xFFFFFFFF, tf.uint32), blocks.shape
        )
        result.append(rotation.sign_bits(random_bits.fmix32(numbers, mix_key)))
        first += blocks.shape.num_elements()
    return result


@compiled.compiled
def _scale(runs, factors, element_key, mix_key):
    """Returns blocks with random signs, times each block's factor."""
    signs = _signs_of_runs(runs, element_key, mix_key)
    result = []
    for blocks, factor, bits in zip(runs, factors, signs, strict=True):
        # Infinite values must not affect other blocks in the same words.
        values = tf.math.multiply_no_nan(tf.cast(blocks, tf.float32), factor[:, tf.newaxis])
        result.append(rotation.with_signs(values, bits))
    return result


@functools.cache
def _unscale(levels):
    @compiled.compiled
    def unscale(runs, scales, element_key, mix_key):
        signs = _signs_of_runs(runs, element_key, mix_key)
        result = []
        for blocks, of_blocks, bits in zip(runs, scales, signs, strict=True):
            units = rotation.units(of_blocks, blocks.shape[1], levels)
            result.append(rotation.with_signs(blocks * units[:, tf.newaxis], bits))
        return result

    return unscale


def _product(blocks, *, normalized=False, bound=0):
    """Returns `H x` of each row of float32 `[count, size]`, or `H x / sqrt(size)` if normalized.

    Args:
        bound: largest magnitude of the integers in rows that are not normalized.
    """
    size = blocks.shape[1]
    columns = size if size < _TWO_SIDED else 2 ** (int(math.log2(size)) // 2)
    sides = size // columns, columns
    right = rotation.hadamard(sides[1])
    right = right / np.float32(math.sqrt(size)) if normalized else right
    is_exact = bound * size <= _EXACT
    if "GPU" in blocks.device:
        is_exact &= bound * sides[0] <= _EXACT_ON_GPUS
    dtype = tf.float32 if normalized or is_exact else tf.float64
    blocks = tf.cast(blocks, dtype)
    if sides[0] > 1:
        blocks = tf.reshape(blocks, [-1, *sides])
        blocks = tf.matmul(tf.constant(rotation.hadamard(sides[0]), dtype), blocks)
        blocks = tf.reshape(blocks, [-1, sides[1]])
    blocks = tf.matmul(blocks, tf.constant(right, dtype))
    return tf.reshape(tf.cast(blocks, tf.float32), [-1, size])
