"""Rounding inside compiled loops, as `quantizer.ternarize` does it for one tensor."""

from typing import Any

import tensorflow as tf

from terngrad_tf.ternary import quantizer, random_bits
from terngrad_tf.ternary.fused import compiled

# Keys of a list are made for a multiple of so many tensors, so that most lists share a function.
_LIST_LENGTH = 64


def arguments(scales: tf.Tensor, tensors: Any, num_tensors: int, seed: int, step: Any) -> Any:
    """Tensors that a loop over T tensors gets: scales, positions in the model, seed and step."""
    tensors = range(num_tensors) if tensors is None else tensors
    if len(tensors) != num_tensors:
        raise ValueError(
            f"`tensors` must have one entry a gradient ({num_tensors}). Received: {len(tensors)}"
        )
    return (
        tf.cast(scales, tf.float32),
        tf.constant(list(tensors), tf.int32),
        compiled.scalar(seed, tf.int64),
        compiled.scalar(step, tf.int64),
    )


def arguments_of(position: int, numbers: Any) -> Any:
    """Those of what `arguments` returned that count for the tensor at a position; T is 1."""
    scales, tensors, seed, step = numbers
    only = slice(position, position + 1)
    return scales[only], tensors[only], seed, step


def by_tensor(numbers: Any, rounding: str, replica: Any) -> Any:
    """What differs between tensors: two keys and the quantization step, each of shape [T].

    Args:
        numbers: what `arguments` returned.
        rounding: one of `ROUNDINGS`.
        replica: scalar int32 tensor.
    """
    scales, tensors, seed, step = numbers
    length = scales.shape[0]
    if length == 1:
        return _by_tensor(numbers, rounding, replica)
    padding = [[0, -length % _LIST_LENGTH]]
    numbers = tf.pad(scales, padding), tf.pad(tensors, padding), seed, step
    return tuple(values[:length] for values in _by_tensor(numbers, rounding, replica))


@compiled.compiled
def _by_tensor(numbers, rounding, replica):
    scales, tensors, seed, step = numbers
    stream = quantizer.rounding_stream(rounding, replica)
    keys = random_bits.key_schedule(seed, step, tensors, stream)
    return *keys, quantizer.quantization_step(scales)


def round_elements(
    gradient: tf.Tensor, elements: tf.Tensor, mix_key: tf.Tensor, unit: tf.Tensor, offset: tf.Tensor
) -> tf.Tensor:
    """Codes in {-1, 0, 1} of elements whose numbers, with the first key added, are given."""
    words = random_bits.fmix32(elements, mix_key) + offset
    return quantizer.round_to_ternary(tf.cast(gradient, tf.float32), unit, words)
