"""Stochastic rounding of gradients to whole steps of a scale."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.quantization_options import ROUNDINGS as ROUNDINGS
from terngrad_tf.ternary import random_bits

# Below, float32 cannot hold a 24-bit fraction or the inverse of the scale: codes are 0.
SMALLEST_SCALE = 2.0**-102
SMALLEST_SCALE_OF_LEVELS = 2.0**-96
# The codes fill eight bits.
MAX_LEVELS = 127


@dataclasses.dataclass(frozen=True)
class Rounding:
    """Rule of rounding an element to a code, a whole number of steps of `scale / levels`.

    Args:
        kind: one of `ROUNDINGS`.
        num_replicas: N.
        levels: L, 1 to `MAX_LEVELS`; codes are in -L..L.
    """

    kind: str
    num_replicas: int
    levels: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ROUNDINGS:
            raise ValueError(
                f"`rounding` must be one of {ROUNDINGS}. Received: rounding={self.kind!r}"
            )
        if self.num_replicas < 1:
            raise ValueError(
                "`num_replicas` must be a positive integer."
                f" Received: num_replicas={self.num_replicas}"
            )
        if not isinstance(self.levels, int) or not 1 <= self.levels <= MAX_LEVELS:
            raise ValueError(
                f"`levels` must be an integer from 1 to {MAX_LEVELS}."
                f" Received: levels={self.levels}"
            )

    def stream(self, replica: Any) -> Any:
        """Returns the number of the random sequence: 0 for all replicas, or 1, 2, ... for each."""
        return 0 if self.kind == "correlated" else tf.cast(replica, tf.int32) + 1

    def offset(self, replica: Any) -> tf.Tensor:
        """Returns the uint32 offset of a replica's random words: `replica * floor(2**32 / N)`."""
        if self.kind == "independent":
            return tf.constant(0, tf.uint32)
        stride = tf.constant((2**32 // self.num_replicas) & 0xFFFFFFFF, tf.uint32)
        return tf.cast(replica, tf.uint32) * stride

    def factor(self, scale: tf.Tensor) -> tf.Tensor:
        """Returns the float32 factor for `codes`, in the shape of the scales."""
        if self.levels == 1:
            return quantization_step(scale)
        return fractions_of_unit(scale, self.levels)

    def codes(self, gradient: tf.Tensor, factor: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        """Rounds float32 elements to int32 codes by uniform random words; arguments broadcast."""
        if self.levels == 1:
            return round_to_ternary(gradient, factor, words)
        return round_to_levels(gradient, factor, words, self.levels)


def quantization_step(scale: tf.Tensor) -> tf.Tensor:
    """Returns `scale / 2**24`, or NaN, which gives the code 0, if the scale is unusable.

    Every comparison with NaN is false, at no cost per element.
    """
    usable = tf.logical_and(scale >= SMALLEST_SCALE, tf.math.is_finite(scale))
    unit = scale * tf.constant(2.0**-24, tf.float32)
    return tf.where(usable, unit, tf.constant(np.nan, tf.float32))


def round_to_ternary(gradient: tf.Tensor, unit: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
    """Returns int32 `floor(clip(gradient / scale, -1, 1) + u)` with `u = (words >> 8) / 2**24`.

    The comparisons `gradient >= scale * (1 - u)` and `gradient < -scale * u` avoid a sum that could
    round up to 1: |gradient| >= scale never gives 0, and 0 always does.

    Args:
        gradient: float32 tensor.
        unit: `quantization_step(scale)`.
        words: uint32 uniform random words.
    """
    below = tf.cast(tf.bitwise.right_shift(words, tf.constant(8, tf.uint32)), tf.int32)
    above = tf.constant(1 << 24, tf.int32) - below
    up = gradient >= unit * tf.cast(above, tf.float32)
    down = gradient < -unit * tf.cast(below, tf.float32)
    return tf.cast(up, tf.int32) - tf.cast(down, tf.int32)


def fractions_of_unit(scale: tf.Tensor, levels: int) -> tf.Tensor:
    """Returns `levels * 2**24 / scale`, the 2**24ths of a step in 1; 0 if the scale is unusable.

    Increased by a 2**22th, so that float rounding does not leave a gradient as large as the scale
    below the last level.
    """
    usable = tf.logical_and(scale >= SMALLEST_SCALE_OF_LEVELS, tf.math.is_finite(scale))
    fractions = tf.constant(levels * 2.0**24, tf.float32) / tf.where(usable, scale, 1.0)
    return tf.where(usable, fractions * tf.constant(1 + 2.0**-22, tf.float32), 0.0)


def round_to_levels(
    gradient: tf.Tensor, fractions: tf.Tensor, words: tf.Tensor, levels: int
) -> tf.Tensor:
    """Returns `floor(clip(gradient / scale, -1, 1) * levels + u)` with `u = (words >> 8) / 2**24`.

    Computes in whole 2**24ths after one product, since processors that fuse products and sums round
    these differently. 0 always gives 0.

    Args:
        gradient: float32 tensor.
        fractions: `fractions_of_unit(scale, levels)`.
        words: uint32 uniform random words.
    """
    bound = tf.constant(levels * 2.0**24, tf.float32)
    # 0 if `fractions` is 0, for any gradient.
    place = tf.math.multiply_no_nan(gradient, fractions)
    place = tf.cast(tf.clip_by_value(place, -bound, bound), tf.int32)
    below = tf.cast(tf.bitwise.right_shift(words, tf.constant(8, tf.uint32)), tf.int32)
    return tf.bitwise.right_shift(place + below, tf.constant(24, tf.int32))


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
    levels: int = 1,
) -> tf.Tensor:
    """Rounds a gradient to ternary or finer codes, without bias if |gradient| <= scale.

    With u uniform in [0, 1): `q = floor(clip(g / s, -1, 1) * L + u)`. If L is 1, the code is 1 with
    probability g/s for 0 <= g, and -1 with probability |g|/s for g < 0, else 0: TernGrad's
    distribution. A larger L adds less variance, equal to QSGD's; the code stands for `q * s / L`.

    * "correlated": all replicas share `u0 = hash(element, step, tensor, seed)`, and replica k of N
      uses `u = frac(u0 + k / N)`. Each replica alone has the distribution above, and their mean has
      less variance.
    * "independent": every replica draws its own u, as in the paper.

    Args:
        gradient: float16, bfloat16 or float32 tensor with a static shape.
        scale: float32 scalar s. Zero, non-finite and scales below `SMALLEST_SCALE` (2e-31; with
            levels 1e-29) give the code 0 for all elements.
        seed: integer or scalar integer tensor.
        step: training step, integer or scalar int32/int64 tensor.
        tensor: index of the tensor within the model.
        replica: k in 0..num_replicas-1, integer or scalar int32 tensor.
        num_replicas: N.
        rounding: one of `ROUNDINGS`.
        levels: L, 1 (ternary) to 127.

    Returns:
        int32 tensor of the shape of `gradient` with values in -L..L.

    Raises:
        ValueError: an argument is out of range.

    Example:
    >>> ternarize(tf.constant([0.3, -2.0, 0.0]), 1.0, seed=0, step=0, tensor=0, replica=0,
    ...           num_replicas=1).shape
    TensorShape([3])

    Source: Wen et al., TernGrad, NIPS 2017 (arXiv 1705.07878); Suresh et al., Correlated
    quantization for distributed mean estimation and optimization, ICML 2022; Alistarh et al., QSGD,
    NIPS 2017 (arXiv 1610.02132).
    """
    rule = Rounding(rounding, num_replicas, levels)
    gradient = tf.convert_to_tensor(gradient)
    words = random_bits.random_words(
        gradient.shape.num_elements(), seed, step, tensor, rule.stream(replica)
    )
    codes = rule.codes(
        tf.reshape(tf.cast(gradient, tf.float32), [-1]),
        rule.factor(tf.cast(scale, tf.float32)),
        words + rule.offset(replica),
    )
    return tf.reshape(codes, gradient.shape)
