"""Rotates gradients before rounding, so that one scale rule suits all of them.

The error of rounding to few codes depends on the distribution of the elements. A random rotation
makes the elements of any block nearly Gaussian. Then the best scale is one multiple of their root
mean square, and clipping removes a known share, which is restored:

    r  = H D x / sqrt(B)                      D: random signs, H: Hadamard matrix, B: block's size
    s  = c max_k rms(r_k)                     one scale per block, shared by the replicas k
    t  = floor(clip(f r / s, -1, 1) L + u)    rounded as in `quantizer`
    sum_k x_k ~ s / (a L sqrt(B)) D H sum_k t_k          a = erf(c / sqrt(2))

c follows from the levels L. A replica's gain f corrects its own part if its block is smaller than
the largest one or has few nonzero elements. The result is unbiased over random signs, except for at
most 6 % of a block's length if few elements dominate, and 13 % with heavy tails
(tests/ternary/rotation_test.py).

Source: Vargaftik et al., EDEN, ICML 2022 (arXiv 2108.08842) and DRIVE, NeurIPS 2021 (arXiv
2105.08339), here with scales shared by replicas, so that sums of codes can be exchanged.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import quantizer, random_bits

# Elements rotated together, with one scale; fewer at a tensor's end.
LARGEST_BLOCK, SMALLEST_BLOCK = 1024, 16
# Its inverse times a gain below 1 must be a normal float32.
LARGEST_SCALE = 2.0**125
# Random sequence of signs; sequences from 0 on belong to replicas.
_SIGNS = -1
# Chords in the search for a gain.
_CHORDS = 3


def block_sizes(num_elements: int) -> list[int]:
    """Returns the sizes of a tensor's blocks: whole ones, and one for the rest, padded with zeros.

    Example:
    >>> block_sizes(2048 + 100), block_sizes(10), block_sizes(0)
    ([1024, 1024, 128], [16], [])
    """
    whole, rest = divmod(num_elements, LARGEST_BLOCK)
    last = [max(SMALLEST_BLOCK, 1 << (rest - 1).bit_length())] if rest else []
    return [LARGEST_BLOCK] * whole + last


def spread(values: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Returns a tensor of a static shape whose elements have the value of their block.

    Args:
        values: tensor `[blocks]`, a value for each of `block_sizes`.
        shape: the tensor's shape.
    """
    whole, rest = divmod(math.prod(shape), LARGEST_BLOCK)
    of_whole = tf.tile(values[:whole, tf.newaxis], [1, LARGEST_BLOCK])
    of_rest = tf.tile(values[whole:], [rest])
    return tf.reshape(tf.concat([tf.reshape(of_whole, [-1]), of_rest], 0), shape)


def mean_of_blocks(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the mean of each of a tensor's blocks, `[blocks]`; the inverse of `spread`.

    Elements are added in one order on all processors.

    Args:
        tensor: tensor of a static shape.
    """
    flat = tf.reshape(tensor, [-1])
    sizes = block_sizes(flat.shape[0])
    whole, rest = divmod(flat.shape[0], LARGEST_BLOCK)
    sums = tf.reshape(tf.pad(flat, [[0, LARGEST_BLOCK * bool(rest) - rest]]), [-1, LARGEST_BLOCK])
    while (half := sums.shape[1] // 2) > 0:
        sums = sums[:, :half] + sums[:, half:]
    counts = [LARGEST_BLOCK] * whole + [rest] * bool(rest)
    return tf.reshape(sums, [len(sizes)]) / tf.constant(counts, flat.dtype)


def scale_factor(levels: int) -> float:
    """Returns factor c of L: the scale as a multiple of the root mean square; 1 for ternary codes.

    Near the least error of replicas' mean. Below 1, gains could not restore blocks of few elements.
    """
    return math.sqrt(1 + 2.25 * math.log2((levels + 1) / 2))


def kept_share(levels: int) -> float:
    """Returns share a of L: what clipping at the scale leaves of Gaussian elements."""
    return math.erf(scale_factor(levels) / math.sqrt(2))


def value_of_code(levels: int) -> float:
    """Returns `1 / (a L)`: the value of a code of 1 in a rotated block, in units of its scale."""
    return 1 / (kept_share(levels) * levels)


@functools.cache
def hadamard(size: int) -> np.ndarray:
    """Returns Sylvester's matrix of 1 and -1, float32: symmetric, `size` times its own inverse."""
    if size == 1:
        return np.ones([1, 1], np.float32)
    half = hadamard(size // 2)
    return np.block([[half, half], [half, -half]])


def sign_bits(words: tf.Tensor) -> tf.Tensor:
    """Returns the bits of uniform random uint32 words that flip signs of float32 numbers."""
    return tf.bitwise.bitwise_and(words, tf.constant(2**31, tf.uint32))


def with_signs(values: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """Returns float32 values with signs flipped by `sign_bits`."""
    return tf.bitcast(tf.bitwise.bitwise_xor(tf.bitcast(values, tf.uint32), bits), tf.float32)


def sign_keys(seed: Any, step: Any, tensor: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the keys of the random words whose `sign_bits` all replicas share."""
    return random_bits.key_schedule(seed, step, tensor, _SIGNS)


def random_signs(num_elements: int, seed: int, step: Any, tensor: Any) -> tf.Tensor:
    """Returns 1 or -1 for each element of a vector, float32, the same on all replicas."""
    words = random_bits.random_words(num_elements, seed, step, tensor, _SIGNS)
    return with_signs(tf.ones([num_elements], tf.float32), sign_bits(words))


def rotate(blocks: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Returns `H D x / sqrt(B)` of each row of float32 [blocks, B], B a power of two."""
    size = blocks.shape[1]
    return tf.matmul(blocks * signs, hadamard(size)) / tf.sqrt(tf.constant(size, tf.float32))


def rotate_back(blocks: tf.Tensor, signs: tf.Tensor) -> tf.Tensor:
    """Inverts `rotate`."""
    return rotate(blocks, tf.ones_like(signs)) * signs


def scales_and_concentrations(
    squares: tf.Tensor, fourths: tf.Tensor, size: int, levels: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a replica's own scales, before replicas share the largest, and concentrations.

    Args:
        squares: float64, `sum x^2` of each block.
        fourths: float64, `sum x^4` of each block.
        size: B.
        levels: L.

    Returns:
        Float32: the scale, `c rms(x)`, infinite if an element is NaN or infinite; and the
            concentration, `sum x^4 / (sum x^2)^2`, from 1/B to 1, which is 1/m for m equal elements
            and zeros.
    """
    rms = tf.sqrt(squares / tf.constant(size, tf.float64))
    scales = tf.minimum(rms * tf.constant(scale_factor(levels), tf.float64), LARGEST_SCALE)
    scales = tf.where(tf.math.is_finite(squares), scales, tf.constant(np.inf, tf.float64))
    concentrations = tf.math.divide_no_nan(fourths, squares * squares)
    return tf.cast(scales, tf.float32), tf.cast(concentrations, tf.float32)


def kept_by(bound: tf.Tensor, concentration: tf.Tensor) -> tf.Tensor:
    """Returns the share of a rotated block's energy within a bound: `E[r clip(r)] / E[r^2]`.

    Rotated elements are sums with random signs. The expectation is known for 1 to 4 equal nonzero
    elements, and for very many, whose sum is Gaussian; others are interpolated.

    Args:
        bound: the bound in units of the root mean square; at least 1.
    """
    half = math.sqrt(0.5)
    shares = (
        (0.0, tf.math.erf(bound * half)),
        (1 / 4, 0.5 + 0.25 * tf.minimum(bound, 2.0)),
        (1 / 3, 0.25 + 0.25 * math.sqrt(3) * tf.minimum(bound, math.sqrt(3))),
        (1 / 2, half * tf.minimum(bound, math.sqrt(2))),
        (1.0, tf.ones_like(bound)),
    )
    result = shares[-1][1]
    for (low, below), (high, above) in reversed(tuple(zip(shares, shares[1:], strict=False))):
        place = (concentration - low) / (high - low)
        result = tf.where(concentration < high, below + place * (above - below), result)
    return result


def gains(shared: tf.Tensor, own: tf.Tensor, concentrations: tf.Tensor, levels: int) -> tf.Tensor:
    """Returns f of each block with `E[r clip(f r, -s, s)] = a E[r^2]`; float32, from a to about 1.

    Args:
        shared: the scales s that replicas share.
        own: this replica's own scales, at most `shared`.
    """
    kept = tf.constant(kept_share(levels), tf.float32)
    bound = scale_factor(levels) * tf.where(own > 0, shared / own, tf.ones_like(own))
    # Blocks with unknown scales are not rounded.
    bound = tf.where(tf.math.is_finite(bound), bound, tf.ones_like(bound))

    def energy(gain):
        return gain * kept_by(bound / gain, concentrations)

    # The energy is concave in the gain: chords from the least gain approach the solution.
    least = kept * tf.ones_like(bound)
    of_least, gain = energy(least), tf.ones_like(bound)
    for _ in range(_CHORDS):
        slope = (energy(gain) - of_least) / tf.maximum(gain - least, 1e-6)
        raised = least + (kept - of_least) / tf.maximum(slope, 1e-6)
        gain = tf.clip_by_value(raised, least, 1.1)
    return gain


def factors(shared: tf.Tensor, own: tf.Tensor, concentrations: tf.Tensor, levels: int) -> tf.Tensor:
    """Returns `f / s` of each block; 0, which makes all codes 0, if the scale is unusable."""
    usable = tf.logical_and(shared >= quantizer.SMALLEST_SCALE, tf.math.is_finite(shared))
    inverse = 1 / tf.where(usable, shared, tf.ones_like(shared))
    return tf.where(usable, gains(shared, own, concentrations, levels) * inverse, 0.0)


def units(scales: tf.Tensor, size: int, levels: int) -> tf.Tensor:
    """Returns the value of a 1 in `D H sum_k t_k`: `s / (a L sqrt(B))`; NaN if s is not finite."""
    unit = scales * tf.constant(value_of_code(levels) / math.sqrt(size), tf.float32)
    return tf.where(tf.math.is_finite(scales), unit, tf.constant(np.nan, tf.float32))
