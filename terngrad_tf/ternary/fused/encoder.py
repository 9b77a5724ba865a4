"""Gradients to packed words, in one pass under XLA."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import codec, quantizer
from terngrad_tf.ternary.fused import compiled, loop_rounding, partition, tiles

_SUPPORTED = (tf.float16, tf.bfloat16, tf.float32)


def encode(
    gradients: Sequence[Any],
    scales: tf.Tensor,
    *,
    seed: int,
    step: Any,
    replica: Any,
    num_replicas: int,
    rounding: str = "correlated",
    base: int = 3,
    tensors: Any = None,
) -> tf.Tensor:
    """Ternarizes a list of tensors and packs the codes into one buffer.

    Every tensor is rounded as by `ternarize` and its digits, code + 1, are packed as by
    `pack(digits, base, padding=1)`; the words of the tensors follow each other in list order.
    With `base = 2 * n + 1` the words of n replicas can be added as int32: no digit carries into the
    next, and `decode` with `total_bias=n` gives the sum of the n gradients.

    Args:
        gradients: list of T float16, bfloat16 or float32 tensors with static shapes.
        scales: float32 tensor of shape [T], the scales shared by all replicas.
        seed, step, replica, num_replicas, rounding: as for `ternarize`.
        base: number of values of a digit, at least 3.
        tensors: T integers that select the random sequence of each tensor. Default 0..T-1.

    Returns:
        int32 tensor of shape [sum of num_words(n_t, base)].

    Raises:
        ValueError: an argument is out of range or a shape is not static.
        TypeError: a gradient is not of a supported type.

    Example:
    >>> encode([tf.ones([40]), tf.zeros([3])], tf.ones([2]), seed=0, step=0, replica=0,
    ...        num_replicas=1).shape
    TensorShape([3])
    """
    quantizer.check_rounding(rounding, num_replicas)
    codec.check_base(base)
    if base < 3:
        raise ValueError(f"`base` must be at least 3 for ternary codes. Received: base={base}")
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
    run = _encoder(shapes, tuple(g.dtype for g in gradients), num_replicas, rounding, base)
    return run(gradients, numbers, compiled.scalar(replica, tf.int32))


@functools.cache
def _encoder(shapes, dtypes, num_replicas, rounding, base):
    """The function that encodes tensors of these shapes, in compiled loops over words.

    One loop for each large tensor, one for all small tensors together. What differs from one small
    tensor to the next becomes one value a column; a function of its own makes these, or XLA
    would look them up again for every digit.
    """
    del dtypes  # They select the trace.
    large, small = partition.split(shapes)
    widths = [codec.num_words(partition.num_elements(shape), base) for shape in shapes]
    count = codec.digits_per_word(base)
    small_columns = partition.Columns({i: widths[i] for i in small})

    @compiled.compiled
    def by_column(numbers, replica):
        element_keys, mix_keys, units = map(
            small_columns.spread, loop_rounding.by_tensor(numbers, rounding, replica)
        )
        strides = small_columns.spread(tf.constant(widths, tf.uint32))
        return element_keys + small_columns.numbers(), mix_keys, units, strides

    @compiled.compiled
    def encode_large(gradients, numbers, replica):
        offset = quantizer.replica_offset(rounding, replica, num_replicas)
        element_keys, mix_keys, units = loop_rounding.by_tensor(numbers, rounding, replica)
        words = []
        for i, gradient in zip(large, gradients, strict=True):
            elements = tiles.column_numbers(widths[i]) + element_keys[i]
            planes = []
            for j in range(count):
                shift = tf.constant(j * widths[i], tf.uint32)
                planes.append((tiles.digit_plane(gradient, j, widths[i]), elements + shift))
            words.append(_encode_planes(planes, units[i], mix_keys[i], offset, base))
        return words

    @compiled.compiled
    def encode_small(joined, columns, replica):
        offset = quantizer.replica_offset(rounding, replica, num_replicas)
        element_keys, mix_keys, units, strides = columns
        planes = []
        for j in range(count):
            shift = strides * tf.constant(j, tf.uint32)
            planes.append((joined[j], element_keys + shift))
        return _encode_planes(planes, units, mix_keys, offset, base)

    def run(gradients, numbers, replica):
        flat = [tf.reshape(gradient, [-1]) for gradient in gradients]
        pieces = {}
        if large:
            words = encode_large([flat[i] for i in large], numbers, replica)
            pieces = dict(zip(large, words, strict=True))
        if small:
            joined = small_columns.join([_planes(flat[i], count, widths[i]) for i in small])
            words = encode_small(joined, by_column(numbers, replica), replica)
            pieces |= small_columns.split(words)
        return tf.concat([pieces[i][: widths[i]] for i in range(len(shapes))], 0)

    return tf.function(run, autograph=False)


def _planes(flat, count, width):
    """A flat tensor as `[count, width]`, filled up with zeros."""
    padding = count * width - flat.shape[0]
    flat = tf.pad(flat, [[0, padding]]) if padding else flat
    return tf.reshape(flat, [count, width])


def _encode_planes(planes, unit, mix_key, offset, base):
    """Words of one column each: Horner's rule over the digits, highest first.

    Args:
        planes: for every digit a pair of the gradients and the keyed element numbers (uint32).
        unit: `quantizer.quantization_step`, scalar or one a column.
        mix_key: uint32, scalar or one a column.
        offset: uint32 scalar.
        base: number of values of a digit.

    Returns:
        int32 tensor of shape [columns].
    """

    @functools.partial(tf.function, autograph=False)
    def digit(*plane):
        return tf.cast(loop_rounding.round_elements(*plane) + 1, tf.uint32)

    digits = [digit(*plane, mix_key, unit, offset) for plane in planes]
    return tf.bitcast(tf.reshape(codec.join_planes(digits, base), [-1]), tf.int32)
