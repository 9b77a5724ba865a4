"""Encodes gradients to packed words, in one pass under XLA."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import codec, quantizer, random_bits
from terngrad_tf.ternary.fused import compiled, loop_rounding, partition, tiles

_SUPPORTED = (tf.float16, tf.bfloat16, tf.float32)
# Columns per tile of small tensors, which are padded to whole tiles.
_SMALL_TILE = 64


def encode(
    gradients: Sequence[Any],
    scales: tf.Tensor,
    *,
    seed: int,
    step: Any,
    replica: Any,
    num_replicas: int,
    rounding: str = "correlated",
    levels: int = 1,
    base: int = 3,
    tensors: Any = None,
) -> tf.Tensor:
    """Rounds a list of tensors to codes and packs them into one buffer.

    Tensors are rounded as by `ternarize`, and digits, code + L, are packed as by `pack(digits,
    base, padding=L)`, in list order. With `base = 2 * n * L + 1`, the words of n replicas can be
    added as int32 without carries between digits, and `decode` with `total_bias=n * L` gives the
    sum of the n gradients.

    Args:
        gradients: list of T float16, bfloat16 or float32 tensors with static shapes.
        scales: float32 tensor [T], shared by all replicas.
        seed, step, replica, num_replicas, rounding, levels: see `ternarize`; L is `levels`.
        base: number of values of a digit, at least `2 * L + 1`.
        tensors: T integers that select each tensor's random sequence. Default 0..T-1.

    Returns:
        int32 tensor [sum of num_words(n_t, base)].

    Raises:
        ValueError: an argument is out of range or a shape is not static.
        TypeError: a gradient's dtype is not supported.

    Example:
    >>> encode([tf.ones([40]), tf.zeros([3])], tf.ones([2]), seed=0, step=0, replica=0,
    ...        num_replicas=1).shape
    TensorShape([3])
    """
    rule = quantizer.Rounding(rounding, num_replicas, levels)
    codec.check_base(base)
    if base < 2 * levels + 1:
        raise ValueError(
            f"`base` must be at least {2 * levels + 1} for codes from {-levels} to {levels}."
            f" Received: base={base}"
        )
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    for gradient in gradients:
        if gradient.dtype not in _SUPPORTED:
            raise TypeError(
                "`gradients` must be float16, bfloat16 or float32."
                f" Received: dtype={gradient.dtype.name}"
            )
    numbers = loop_rounding.arguments(scales, tensors, len(gradients), seed, step)
    if not gradients:
        return tf.zeros([0], tf.int32)
    shapes = tuple(compiled.static_shape(g, "gradients") for g in gradients)
    run = _encoder(shapes, tuple(g.dtype for g in gradients), rule, base)
    return run(gradients, numbers, compiled.scalar(replica, tf.int32))


@functools.cache
def _encoder(shapes, dtypes, rounding, base):
    """Returns the function that encodes tensors of these shapes, in compiled loops over words."""
    large, small = partition.split(shapes)
    widths = [codec.num_words(partition.num_elements(shape), base) for shape in shapes]
    count = codec.digits_per_word(base)
    columns = partition.Columns({i: widths[i] for i in small}, _SMALL_TILE)

    @compiled.compiled
    def encode_small(joined, by_tile, offset):
        element_keys, mix_keys, factors, strides = by_tile
        digits = tf.range(count)[:, tf.newaxis, tf.newaxis]
        firsts = element_keys + strides * tf.cast(digits, tf.uint32)
        numbers = tf.cast(tf.range(_SMALL_TILE), tf.uint32)
        planes = zip(tf.unstack(joined), tf.unstack(firsts), strict=True)
        return _join_digits(rounding, base, planes, numbers, mix_keys, factors, offset)

    def run(gradients, numbers, replica):
        constant = compiled.constants()
        flat = [tf.reshape(gradient, constant((-1,))) for gradient in gradients]
        keys = loop_rounding.by_tensor(numbers, rounding, replica)
        offset = rounding.offset(replica)
        pieces = {}
        for i in large:
            loop = _large_encoder(flat[i].shape[0], dtypes[i], rounding, base)
            words = tf.reshape(loop(flat[i], keys, constant(i), offset), constant((-1,)))
            pieces[i] = tf.slice(words, constant((0,)), constant((widths[i],)))
        if small:
            planes = {}
            for i in small:
                padding = count * widths[i] - flat[i].shape[0]
                plane = tf.pad(flat[i], constant(((0, padding),))) if padding else flat[i]
                planes[i] = tf.reshape(plane, constant((count, widths[i])))
            by_tile = [columns.spread(v) for v in (*keys, tf.constant(widths, tf.uint32))]
            by_tile[0] += columns.firsts()
            pieces |= columns.split(encode_small(columns.join(planes), by_tile, offset))
        return tf.bitcast(tf.concat([pieces[i] for i in range(len(shapes))], 0), tf.int32)

    return tf.function(run, autograph=False)


@functools.cache
def _large_encoder(size, dtype, rounding, base):
    """Returns the compiled loop over a tensor's words, shared by all tensors of this size."""
    del dtype  # selects the trace
    width, count = codec.num_words(size, base), codec.digits_per_word(base)

    @compiled.compiled
    def encode_large(gradient, keys, position, offset):
        element_key, mix_key, factor = (values[position] for values in keys)
        numbers = random_bits.numbers_from(element_key, [tiles.num_tiles(width), tiles.TILE])
        shifts = tf.unstack(tf.constant(np.arange(count, dtype=np.uint32) * np.uint32(width)))
        planes = zip(tiles.digit_planes(gradient, count, width), shifts, strict=True)
        return _join_digits(rounding, base, planes, numbers, mix_key, factor, offset)

    return encode_large


def _join_digits(rounding, base, planes, numbers, mix_key, factor, offset):
    """Rounds columns of digits and joins them into words.

    Args:
        planes: for each digit, the gradients, `[tiles, columns of a tile]`, and a uint32 key that
            is added to their numbers. Keys and factors are scalar or one per tile.
        numbers: uint32, of the columns.
        factor: `rounding.factor` of the scale.

    Returns:
        The words' bits as float32: TensorFlow keeps int32 in the memory of a GPU's host, and has
        fewer kernels for uint32.
    """
    digit = _digit(rounding)
    digits = [digit(*plane, numbers, mix_key, factor, offset) for plane in planes]
    return tf.bitcast(codec.join_planes(digits, base), tf.float32)


@functools.cache
def _digit(rounding):
    """Returns the function that rounds a plane of gradients to one digit of each word."""

    def digit(*plane):
        codes = loop_rounding.round_elements(rounding, *plane)
        return tf.cast(codes + rounding.levels, tf.uint32)

    return compiled.called(digit)
