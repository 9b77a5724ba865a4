"""How functions called by graphs are traced, and their common parts."""

import functools
from collections.abc import Callable
from concurrent import futures
from typing import Any

import numpy as np
import tensorflow as tf


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of structures of tensors with XLA; Python numbers come from closures."""
    return _traced_apart(function, jit_compile=True)


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turns a function of structures of tensors into one that graphs call, not repeat inline.

    TensorFlow keeps each operation of a graph several times.
    """
    return _traced_apart(function)


def _traced_apart(function, **options):
    """Returns a `tf.function` that is traced once for each signature, in a separate thread.

    XLA keeps the call stack of each operation's creation; a new thread's stack is empty.
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
    """Returns a function of (nested tuples of) integers to int32 constants, one per distinct value.

    Python numbers would become one operation per use. A graph knows only its own constants: use the
    function for a single trace.
    """
    return functools.cache(functools.partial(tf.constant, dtype=tf.int32))


def scalar(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Converts an integer to a scalar tensor; Python integers wrap around."""
    if isinstance(value, (int, np.integer)):
        bits = dtype.size * 8
        value = int(value) & ((1 << bits) - 1)
        value -= (1 << bits) if value >> (bits - 1) else 0
        return tf.constant(value, dtype)
    return tf.cast(tf.convert_to_tensor(value), dtype)


def static_shape(tensor: tf.Tensor, argument: str) -> tuple[int, ...]:
    """Returns the shape of a tensor, which must be known when the function is traced."""
    shape = tf.TensorShape(tensor.shape)
    if not shape.is_fully_defined():
        raise ValueError(f"`{argument}` must have a static shape. Received: shape={shape}")
    return tuple(shape.as_list())
