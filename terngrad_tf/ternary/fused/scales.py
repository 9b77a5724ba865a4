"""The scales of many gradient tensors, in as few passes as possible."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import scales
from terngrad_tf.ternary.fused import compiled, partition, tiles

# Tensors up to this size are reduced together, padded to a power of four.
_SMALL = 2**16
# Larger tensors are first folded by XLA; for smaller ones, compiling costs more.
_HUGE = 2**20
# Parts of a huge tensor that are added elementwise.
_PLANES = 16
# Squares are accurate enough in float32 between these magnitudes.
_SQUARABLE = (1e-15, 1e15)


def local_scales(gradients: Sequence[Any], clip_factor: float | str, **options: Any) -> tf.Tensor:
    """`local_scale` of each tensor of a list, as one float32 tensor of shape [T]."""
    rule = scales.ScaleRule(clip_factor, **options)
    if not gradients:
        return tf.zeros([0], tf.float32)
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    shapes = tuple(compiled.static_shape(g, "gradients") for g in gradients)
    run = _scaler(shapes, tuple(g.dtype for g in gradients), rule)
    return run(gradients)


@functools.cache
def _scaler(shapes, dtypes, rule):
    """Returns the function for tensors of these shapes.

    Plain TensorFlow, since XLA reduces on one thread; but XLA adds the planes of a huge tensor on
    all threads, in fewer passes.
    """
    del dtypes  # select the trace
    sizes = [partition.num_elements(shape) for shape in shapes]
    large = [i for i, size in enumerate(sizes) if size > _SMALL]
    huge = [i for i in large if sizes[i] > _HUGE]
    groups = {}
    for i, size in enumerate(sizes):
        if 0 < size <= _SMALL:
            groups.setdefault(_padded(size), []).append(i)

    def run(gradients):
        constant = compiled.constants()
        flat = [tf.reshape(g, constant((-1,))) for g in gradients]
        by_position = dict.fromkeys(range(len(flat)), tf.zeros([1], tf.float32))
        if large:
            folded = dict(zip(huge, _fold([flat[i] for i in huge]), strict=True)) if huge else {}
            moments = [
                _moments_of_folded(flat[i], *folded[i])
                if i in folded
                else _moments(flat[i], constant(0))
                for i in large
            ]
            of_large = _large_scales([flat[i] for i in large], moments, rule)
            by_position |= zip(large, tf.split(of_large, len(large)), strict=True)
        for padded, members in groups.items():
            rows = [tf.pad(flat[i], constant(((0, padded - sizes[i]),))) for i in members]
            rows = tf.stack([tf.cast(row, tf.float32) for row in rows])
            of_rows = scales.scales_of_rows(rows, [sizes[i] for i in members], rule)
            by_position |= zip(members, tf.split(of_rows, len(members)), strict=True)
        return tf.concat([*by_position.values()], 0)

    return tf.function(run, autograph=False)


def _padded(size: int) -> int:
    length = 64
    while length < size:
        length *= 4
    return length


def _folded_size(size):
    """Returns the number of elements that `_fold` includes."""
    return size // (_PLANES * tiles.TILE) * _PLANES * tiles.TILE


@compiled.compiled
def _fold(tensors):
    """Adds and compares the planes of the first `_folded_size` elements of flat tensors.

    Returns:
        For each tensor, complex64 `sum + i * (sum of squares)` and `largest size + i * (sum of
        sizes)`, an element for every `_PLANES`: XLA computes complex numbers in one pass.
    """
    results = []
    for flat in tensors:
        planes = tf.reshape(flat[: _folded_size(flat.shape[0])], [_PLANES, -1, tiles.TILE])
        planes = [tf.cast(plane, tf.float32) for plane in tf.unstack(planes)]
        sizes = [tf.abs(p) for p in planes]
        squares = tiles.pairwise(tf.add, [tf.square(p) for p in planes])
        sums = tf.complex(tiles.pairwise(tf.add, planes), squares)
        results.append(
            (sums, tf.complex(tiles.pairwise(tf.maximum, sizes), tiles.pairwise(tf.add, sizes)))
        )
    return results


def _moments_of_folded(flat, sums, sizes):
    """Computes `_moments` from the results of `_fold` and the remaining elements."""
    rest = tf.cast(flat[_folded_size(flat.shape[0]) :], tf.float32)
    size = tf.constant(flat.shape[0], tf.float32)
    return (
        tf.maximum(tf.reduce_max(tf.math.real(sizes)), tf.reduce_max(tf.abs(rest))),
        (tf.reduce_sum(tf.math.imag(sizes)) + tf.reduce_sum(tf.abs(rest))) / size,
        (tf.reduce_sum(tf.math.real(sums)) + tf.reduce_sum(rest)) / size,
        (tf.reduce_sum(tf.math.imag(sums)) + tf.reduce_sum(tf.square(rest))) / size,
    )


def _moments(flat, axis):
    """Returns largest size, mean size, mean and mean square by reductions of a cached vector.

    Args:
        axis: constant 0; without it, graphs hold one for each reduction.
    """
    flat = tf.cast(flat, tf.float32)
    largest = tf.maximum(tf.reduce_max(flat, axis), -tf.reduce_min(flat, axis))
    mean_square = tf.nn.l2_loss(flat) * (2.0 / tf.constant(flat.shape[0], tf.float32))
    return largest, tf.reduce_mean(tf.abs(flat), axis), tf.reduce_mean(flat, axis), mean_square


def _large_scales(tensors, moments, rule):
    """Computes scales of large tensors from float32 moments if these are accurate enough."""
    largest, mean_size, mean, mean_square = (
        tf.stack(column) for column in zip(*moments, strict=True)
    )
    variance = mean_square - tf.square(mean)
    # Also false for NaN. If the mean dominates, the difference is mostly rounding error.
    is_squarable = (largest > _SQUARABLE[0]) & (largest < _SQUARABLE[1])
    is_exact = is_squarable & tf.math.is_finite(mean_square) & (variance > 0.01 * mean_square)
    is_exact |= (largest == 0) & (mean_square == 0)
    one_pass = rule.scales(scales.Moments(largest, mean_size, mean_square, tf.sqrt(variance)))

    def two_passes():
        exact = tf.stack([_two_passes(rule)(flat) for flat in tensors])
        return tf.where(is_exact, one_pass, exact)

    return tf.cond(tf.reduce_all(is_exact), lambda: one_pass, two_passes)


@functools.cache
def _two_passes(rule):
    return compiled.called(lambda flat: scales.scale_of(flat, rule))
