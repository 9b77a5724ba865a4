"""Functions that graphs call: how they are traced, and what they share."""

import functools
from collections.abc import Callable
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of structures of tensors under XLA; its Python numbers come from a closure."""
    return _traced_apart(function, jit_compile=True)


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of structures of tensors that graphs call in place of repeating its operations.

    TensorFlow holds an operation of a graph several times, some 30 KB of memory in a step of `fit`.
    """
    return _traced_apart(function)


def _traced_apart(function, **options):
    """A `tf.function` that is traced once for each signature, by a thread of its own.

    XLA holds for each operation the names of all Python files and functions in whose calls it was
    made, some 15 KB in a step of `fit`; in a thread of its own, calls begin.
    """
    traced = tf.function(function, autograph=False, **options)
    of_signature = {}

    @functools.wraps(function)
    def call(*arguments):
        arguments = tf.nest.map_structure(tf.convert_to_tensor, arguments)
        signature = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), arguments)
        key = str(signature)
        if key not in of_signature:
            with futures.ThreadPoolExecutor(1) as thread:
                tracing = thread.submit(traced.get_concrete_function, *signature)
                of_signature[key] = tracing.result()
        return of_signature[key](*arguments)

    return call


def constants() -> Callable[[Any], tf.Tensor]:
    """Function of integers or nested tuples of them to int32 constants, one for all that are equal.

    Shapes and places that are given as Python numbers become operations of a graph for each use.
    For a single trace: a graph knows only its own constants.
    """
    return functools.cache(functools.partial(tf.constant, dtype=tf.int32))


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
