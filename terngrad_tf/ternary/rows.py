"""Rounds rows of a weight, of which a step may use a few, to words of scales and codes.

The noise of long rows would drown short ones: rows come sorted by length, and small blocks of them
are rotated and rounded, each with its own scale. Unlike `Rotation`, this is for one replica, whose
rows others may not have, and for numbers of rows known only to the running step.

Scale, gain and rounding are those of `rotation`, with independent random bits for each member.
"""

from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import codec, quantizer, random_bits, rotation

# Elements with a scale of their own: 1/8 bit an element. Large blocks multiply the relative error
# of short rows.
BLOCK = 256


def num_row_words(count: Any, width: int, levels: int) -> Any:
    """Returns the number of words of `encode_rows`."""
    blocks = -(-count * width // BLOCK)
    return blocks + codec.num_words(blocks * BLOCK, 2 * levels + 1)


def encode_rows(
    rows: tf.Tensor, *, levels: int, seed: int, step: Any, tensor: Any, member: int
) -> tf.Tensor:
    """Rounds the rows of one member to words.

    Args:
        rows: float32 tensor `[count, width]`, longest rows first.
        member: number of the sequence of random bits.

    Returns:
        int32 vector: a scale for each block, infinite if a row is not finite, then the codes as
            digits in base `2 L + 1`.

    Example:
    >>> words = encode_rows(tf.ones([2, 4]), levels=1, seed=0, step=0, tensor=0, member=0)
    >>> int(tf.size(words)) == num_row_words(2, 4, levels=1) == 1 + 13
    True
    """
    size = tf.size(rows)
    num_blocks = -(-size // BLOCK)
    padded = tf.pad(tf.reshape(rows, [size]), [[0, num_blocks * BLOCK - size]])
    blocks = tf.reshape(padded, tf.stack([num_blocks, BLOCK]))
    blocks = tf.ensure_shape(blocks, [None, BLOCK])
    squares = tf.square(tf.cast(blocks, tf.float64))
    scales, concentrations = rotation.scales_and_concentrations(
        tf.reduce_sum(squares, 1), tf.reduce_sum(tf.square(squares), 1), BLOCK, levels
    )
    factors = rotation.factors(scales, scales, concentrations, levels)
    rotated = rotation.rotate(blocks, _signs(num_blocks, seed, step, tensor))
    rule = quantizer.Rounding("independent", 1, levels)
    keys = random_bits.key_schedule(seed, step, tensor, rule.stream(member))
    codes = rule.codes(
        # No product with the elements of a block that is not finite.
        tf.math.multiply_no_nan(rotated, factors[:, tf.newaxis]),
        rule.factor(tf.constant(1.0)),
        _random_words(num_blocks, *keys),
    )
    packed = codec.pack(tf.reshape(codes + levels, [-1]), 2 * levels + 1)
    return tf.concat([tf.bitcast(scales, tf.int32), packed], 0)


def decode_rows(
    words: tf.Tensor, count: Any, width: int, *, levels: int, seed: int, step: Any, tensor: Any
) -> tf.Tensor:
    """Returns the float32 rows `[members, count, width]` that words of `encode_rows` stand for.

    Rows whose scale is infinite are NaN.

    Args:
        words: int32 tensor `[members, num_row_words(count, width, levels)]`.
        count: number of rows of each member.
    """
    members, num_blocks = words.shape[0], -(-count * width // BLOCK)
    scales = tf.bitcast(words[:, :num_blocks], tf.float32)
    codes = codec.digits_of(words[:, num_blocks:], num_blocks * BLOCK, 2 * levels + 1) - levels
    blocks = tf.reshape(tf.cast(codes, tf.float32), tf.stack([members * num_blocks, BLOCK]))
    turned = tf.matmul(blocks, rotation.hadamard(BLOCK))
    turned = tf.reshape(turned, tf.stack([members, num_blocks, BLOCK]))
    units = rotation.units(scales, BLOCK, levels)[..., tf.newaxis]
    values = turned * _signs(num_blocks, seed, step, tensor) * units
    values = tf.reshape(values, tf.stack([members, num_blocks * BLOCK]))[:, : count * width]
    return tf.reshape(values, tf.stack([members, count, width]))


def _signs(num_blocks, seed, step, tensor):
    words = _random_words(num_blocks, *rotation.sign_keys(seed, step, tensor))
    return rotation.with_signs(tf.ones_like(words, tf.float32), rotation.sign_bits(words))


def _random_words(num_blocks, element_key, mix_key):
    """Returns the words `[num_blocks, BLOCK]` of `random_bits` with these keys."""
    numbers = tf.cast(tf.range(num_blocks * BLOCK), tf.uint32) + element_key
    return tf.reshape(random_bits.fmix32(numbers, mix_key), tf.stack([num_blocks, BLOCK]))
