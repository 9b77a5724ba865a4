"""Rounding inside compiled loops, equal to `quantizer.ternarize` for one tensor."""

import functools
from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import quantizer, random_bits
from terngrad_tf.ternary.fused import compiled

# Lists are padded to multiples, so that most share a function.
_LIST_LENGTH = 64


def arguments(scales: tf.Tensor, tensors: Any, num_tensors: int, seed: int, step: Any) -> Any:
    """Returns the inputs of a loop over T tensors: scales, positions in the model, seed and step.

    Scales and positions are padded to a multiple of `_LIST_LENGTH`.
    """
    tensors = range(num_tensors) if tensors is None else tensors
    if len(tensors) != num_tensors:
        raise ValueError(
            f"`tensors` must have one entry per gradient ({num_tensors}). Received: {len(tensors)}"
        )
    padding = -num_tensors % _LIST_LENGTH
    return (
        tf.pad(tf.cast(scales, tf.float32), [[0, padding]]),
        tf.constant([*tensors, *[0] * padding], tf.int32),
        compiled.scalar(seed, tf.int64),
        compiled.scalar(step, tf.int64),
    )


def by_tensor(numbers: Any, rounding: quantizer.Rounding, replica: Any) -> Any:
    """Returns two keys and the scale's factor for each tensor, given the result of `arguments`."""
    return _by_tensor(rounding)(numbers, replica)


@functools.cache
def _by_tensor(rounding):
    @compiled.compiled
    def by_tensor(numbers, replica):
        scales, tensors, seed, step = numbers
        keys = random_bits.key_schedule(seed, step, tensors, rounding.stream(replica))
        return *keys, rounding.factor(scales)

    return by_tensor


def round_elements(
    rounding: quantizer.Rounding,
    gradient: tf.Tensor,
    element_key: tf.Tensor,
    numbers: tf.Tensor,
    mix_key: tf.Tensor,
    factor: tf.Tensor,
    offset: tf.Tensor,
) -> tf.Tensor:
    """Rounds elements, given their uint32 numbers and the results of `by_tensor`, which broadcast.

    If numbers are counted from another position, increase the key by it.
    """
    words = random_bits.fmix32(numbers + element_key, mix_key) + offset
    return rounding.codes(tf.cast(gradient, tf.float32), factor, words)
