"""The variance that rounding adds to rotated gradients, in closed form.

Elements of a rotated block are nearly Gaussian, so the variance follows from their root mean square
and the scale, and rotating back makes it the same for all elements. Of N replicas with the share
`q_k = rms_k / s` of a block's shared scale s:

    variance of the sum, an element = s^2 sum_k w(q_k)
    w = v - (1 - 1/N) A                                   correlated rounding; independent: w = v
    v = E[t^2] / (a L)^2 - q^2                            of one replica, clipping included
    A = Var_u(E[t | u]) / (a L)^2                         what replicas with shared random bits save

with the codes t and the share a of `rotation`, and uniform u.
"""

import functools
import math

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import rotation

# Gaussian elements, in units of their root mean square, and random fractions.
_ELEMENTS = np.linspace(-7.0, 7.0, 7001)
_FRACTIONS = (np.arange(64) + 0.5) / 64
# Steps of a table's shares from 0 to 1, and those that are computed, not interpolated.
_STEPS = 256
_COMPUTED = sorted({0, 1, 2, 4, *range(8, _STEPS + 1, 8)})
# Its values are integers up to this number, and their unit is a power of two: float32 sums are
# exact, and bits do not depend on the order of operations.
_PARTS, _EXACT = 2**12, 2**24


@functools.cache
def rounding_noise(levels: int, num_replicas: int, rounding: str, share: float = 1.0) -> float:
    """The variance w of an element that one of N replicas adds to a sum, in units of `s^2`.

    Args:
        levels: L.
        num_replicas: N.
        rounding: "correlated" or "independent", as for `ternarize`.
        share: the root mean square of the replica's block as a part of the largest, `c q`.

    Example:
    >>> round(rounding_noise(1, 1, "independent"), 3), round(rounding_noise(1, 8, "correlated"), 3)
    (0.354, 0.28)
    """
    weights = np.exp(-_ELEMENTS * _ELEMENTS / 2)
    weights /= weights.sum()
    kept, rms = rotation.kept_share(levels), share / rotation.scale_factor(levels)
    steps = levels * np.clip(_gain(kept, rms) * rms * _ELEMENTS, -1, 1)
    up = steps - np.floor(steps)
    variance = weights @ (steps * steps + up * (1 - up)) / (kept * levels) ** 2 - rms * rms
    if rounding == "independent":
        return float(variance)
    of_fraction = [weights @ (np.floor(steps + u) - steps) for u in _FRACTIONS]
    shared = np.mean(np.square(of_fraction)) / (kept * levels) ** 2
    return float(variance - (1 - 1 / num_replicas) * shared)


def noise_of_sums(
    shared: tf.Tensor,
    own: tf.Tensor,
    num_replicas: int,
    *,
    levels: int,
    rounding: str,
) -> tf.Tensor:
    """Returns the variance `sum_k w(q_k)` of each element of summed blocks, in units of `s^2`.

    The bits are the same on all processors, because the optimizers of all processes use them.

    Args:
        shared: float32 tensor [blocks], the finite scales s that replicas share.
        own: float32 tensor [M, blocks], the own scales of M members with N / M replicas each.
        num_replicas: N.
        levels: L.
        rounding: "correlated" or "independent".

    Returns:
        Float32 tensor [blocks].

    Example:
    >>> noise = noise_of_sums([1.0], [[1.0], [0.5]], 2, levels=1, rounding="correlated")
    >>> round(float(noise[0]), 2)
    0.57
    """
    shared, own = tf.convert_to_tensor(shared), tf.convert_to_tensor(own)
    unit, table = _table(levels, num_replicas, rounding, num_replicas // own.shape[0])
    shares = tf.where(own < shared, own / shared, tf.ones_like(own))
    places = tf.cast(tf.round(shares * _STEPS), tf.int32)
    sums = tf.reduce_sum(tf.gather(tf.constant(table), places), 0)
    return sums * tf.constant(unit, tf.float32)


@functools.cache
def _table(levels, num_replicas, rounding, num_local):
    """Returns the unit and float32 table of the variance of L equal replicas, by their share."""
    computed = [
        rounding_noise(levels, num_replicas, rounding, place / _STEPS) if place else 0.0
        for place in _COMPUTED
    ]
    parts = min(_PARTS, _EXACT // num_replicas)
    unit = 2.0 ** math.ceil(math.log2(computed[-1] / parts))
    values = np.interp(np.arange(_STEPS + 1), _COMPUTED, computed)
    return unit, num_local * np.round(values / unit).astype(np.float32)


def _gain(kept, rms):
    """F of a Gaussian block: `f erf(1 / (f q sqrt(2))) = a`, by halving its range."""
    low, high = kept, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if middle * math.erf(1 / (middle * rms * math.sqrt(2))) < kept:
            low = middle
        else:
            high = middle
    return high
