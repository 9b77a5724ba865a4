"""Stochastic rounding of a gradient to {-1, 0, 1} times a scale."""

from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary import random_bits

ROUNDINGS = ("correlated", "independent")
# Below, a 24-bit fraction of the scale is not a normal float32. Gradients this small are rounded
# to zero.
SMALLEST_SCALE = 2.0**-102


def check_rounding(rounding: str, num_replicas: int) -> None:
    """Raises ValueError unless both arguments are legal."""
    if rounding not in ROUNDINGS:
        raise ValueError(f"`rounding` must be one of {ROUNDINGS}. Received: rounding={rounding!r}")
    if num_replicas < 1:
        raise ValueError(
            f"`num_replicas` must be a positive integer. Received: num_replicas={num_replicas}"
        )


def quantization_step(scale: tf.Tensor) -> tf.Tensor:
    """`scale / 2**24`, or NaN where the scale is not positive and finite.

    Every comparison with NaN is false, so such a scale gives the code 0 for all elements at no
    cost per element. So do scales below `SMALLEST_SCALE`, whose unit float32 does not hold.
    """
    usable = tf.logical_and(scale >= SMALLEST_SCALE, tf.math.is_finite(scale))
    unit = scale * tf.constant(2.0**-24, tf.float32)
    return tf.where(usable, unit, tf.constant(np.nan, tf.float32))


def round_to_ternary(gradient: tf.Tensor, unit: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """`floor(clip(gradient / scale, -1, 1) + u)` in {-1, 0, 1}, with `u = (words >> 8) / 2**24`.

    Written as two comparisons, `gradient >= scale * (1 - u)` and `gradient < -scale * u`: no
    division and no sum that could round up to 1, so |gradient| >= scale never gives 0, and 0
    always gives 0.

    Args:
        gradient: float32 tensor.
        unit: float32, broadcasts to `gradient`; `quantization_step(scale)`.
        words: uint32, broadcasts to `gradient`; uniform random words.

    Returns:
        int32 tensor of the shape of `gradient`.
    """
    below = tf.cast(tf.bitwise.right_shift(words, tf.constant(8, tf.uint32)), tf.int32)
    above = tf.constant(1 << 24, tf.int32) - below
    up = gradient >= unit * tf.cast(above, tf.float32)
    down = gradient < -unit * tf.cast(below, tf.float32)
    return tf.cast(up, tf.int32) - tf.cast(down, tf.int32)


def rounding_stream(rounding: str, replica: Any) -> Any:
    """Stream number of the random words: one for all replicas (0), or one for each (1, 2, ...)."""
    return 0 if rounding == "correlated" else tf.cast(replica, tf.int32) + 1


def replica_offset(rounding: str, replica: Any, num_replicas: int) -> tf.Tensor:
    """uint32 scalar added to a replica's random words: `replica * floor(2**32 / num_replicas)`."""
    if rounding == "independent":
        return tf.constant(0, tf.uint32)
    stride = tf.constant((2**32 // num_replicas) & 0xFFFFFFFF, tf.uint32)
    return tf.cast(replica, tf.uint32) * stride


def ternarize(
    gradient: tf.Tensor,
    scale: tf.Tensor,
    *,
    seed: int,
    step: Any,
    tensor: tf.Tensor,
    replica: Any,
    num_replicas: int,
    rounding: str = "correlated",
) -> tf.Tensor:
    """Rounds a gradient to ternary codes, without bias where |gradient| <= scale.

    With u uniform in [0, 1): `q = floor(clip(g / s, -1, 1) + u)`. For 0 <= g this is 1 with
    probability g/s, for g < 0 it is -1 with probability |g|/s, else 0: TernGrad's distribution.

    * "correlated": all replicas share `u0 = hash(element, step, tensor, seed)` and replica k of N
      uses `u = frac(u0 + k / N)`. Each replica alone has the distribution above, and the mean over
      replicas has less variance.
    * "independent": every replica has its own u, as in the paper.

    Args:
        gradient: float16, bfloat16 or float32 tensor with a static shape.
        scale: float32 scalar s. Zero, non-finite and scales below `SMALLEST_SCALE` (2e-31) give the
            code 0 everywhere.
        seed: Python integer or scalar integer tensor.
        step: training step, Python integer or scalar int32/int64 tensor.
        tensor: index of the tensor within the model.
        replica: k in 0..num_replicas-1, Python integer or scalar int32 tensor.
        num_replicas: N.
        rounding: one of `ROUNDINGS`.

    Returns:
        int32 tensor of the shape of `gradient` with values in {-1, 0, 1}.

    Raises:
        ValueError: unknown `rounding`, or `num_replicas` below 1.

    Example:
    >>> ternarize(tf.constant([0.3, -2.0, 0.0]), 1.0, seed=0, step=0, tensor=0, replica=0,
    ...           num_replicas=1).shape
    TensorShape([3])

    Source: Wen et al., TernGrad, NIPS 2017 (arXiv 1705.07878); Suresh et al., Correlated
    quantization for distributed mean estimation and optimization, ICML 2022.
    """
    check_rounding(rounding, num_replicas)
    gradient = tf.convert_to_tensor(gradient)
    words = random_bits.random_words(
        gradient.shape.num_elements(), seed, step, tensor, rounding_stream(rounding, replica)
    )
    words += replica_offset(rounding, replica, num_replicas)
    codes = round_to_ternary(
        tf.reshape(tf.cast(gradient, tf.float32), [-1]),
        quantization_step(tf.cast(scale, tf.float32)),
        words,
    )
    return tf.reshape(codes, gradient.shape)
