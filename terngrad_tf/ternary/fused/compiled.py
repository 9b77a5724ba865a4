"""Caching and argument checks of the functions compiled by XLA."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of tensors under XLA; its Python numbers come from a closure."""
    return tf.function(function, jit_compile=True, autograph=False, reduce_retracing=False)


def scalar(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Scalar tensor of an integer; Python integers wrap around as their low bits."""
    if isinstance(value, (int, np.integer)):
        bits = dtype.size * 8
        value = int(value) & ((1 << bits) - 1)
        value -= (1 << bits) if value >> (bits - 1) else 0
        return tf.constant(value, dtype)
    return tf.cast(tf.convert_to_tensor(value), dtype)


def static_shape(tensor: tf.Tensor, argument: str) -> tuple[int, ...]:
    """Shape of a tensor as a tuple, which must be known when the function is traced."""
    shape = tf.TensorShape(tensor.shape)
    if not shape.is_fully_defined():
        raise ValueError(f"`{argument}` must have a static shape. Received: shape={shape}")
    return tuple(shape.as_list())
