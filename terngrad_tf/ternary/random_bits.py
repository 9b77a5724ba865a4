"""Counter-based random words: a pure function of (element, seed, step, tensor, stream)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_GOLDEN = 0x9E3779B9
_MURMUR_1 = 0x85EBCA6B
_MURMUR_2 = 0xC2B2AE35
# Two chains give the 64 key bits; any two constants work.
_CHAIN_STARTS = np.array([0x243F6A88, 0x85A308D3], np.uint32)
# Length of the rows of element numbers.
_ROW = 2**12


def _u32(value: int) -> tf.Tensor:
    return tf.constant(value & 0xFFFFFFFF, tf.uint32)


def _shift_xor(x: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, _u32(bits)))


def fmix32(x: tf.Tensor, key: tf.Tensor | None = None) -> tf.Tensor:
    """Applies MurmurHash3's 32-bit finalizer, a bijection; each input bit affects each output bit.

    Args:
        x: uint32 tensor.
        key: uint32 tensor, mixed in between the two multiplications, so that two keys do not merely
            permute one sequence. None: the plain finalizer.

    Source: Austin Appleby, MurmurHash3 (public domain), function `fmix32`.
    """
    x = _shift_xor(x, 16) * _u32(_MURMUR_1)
    if key is not None:
        x = tf.bitwise.bitwise_xor(x, key)
    x = _shift_xor(x, 13) * _u32(_MURMUR_2)
    return _shift_xor(x, 16)


def _to_u32_pair(value) -> list[tf.Tensor]:
    """Splits an integer into low and high 32 bits."""
    if isinstance(value, (int, np.integer)):
        return [_u32(int(value)), _u32(int(value) >> 32)]
    value = tf.cast(tf.convert_to_tensor(value), tf.int64)
    low = tf.cast(tf.bitwise.bitwise_and(value, tf.constant(0xFFFFFFFF, tf.int64)), tf.uint32)
    high = tf.cast(
        tf.bitwise.bitwise_and(
            tf.bitwise.right_shift(value, tf.constant(32, tf.int64)),
            tf.constant(0xFFFFFFFF, tf.int64),
        ),
        tf.uint32,
    )
    return [low, high]


def key_schedule(
    seed: int, step: Any, tensor: tf.Tensor, stream: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Derives two 32-bit keys for one random sequence.

    `seed` and `step` use 64 bits, `tensor` and `stream` 32. Arguments broadcast: `tensor` of shape
    [T] gives uint32 keys [T]. If exactly one 32-bit half of one argument differs, both keys differ.
    """
    values = [*_to_u32_pair(seed), *_to_u32_pair(step), _to_u32_pair(tensor)[0]]
    values.append(_to_u32_pair(stream)[0])
    chains = []
    for start in _CHAIN_STARTS:
        state = _u32(int(start))
        for value in values:
            state = fmix32(tf.bitwise.bitwise_xor(state, value)) + _u32(_GOLDEN)
        chains.append(state)
    return chains[0], chains[1]


def numbers_from(first: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Returns uint32 numbers `first`, `first + 1`, ... in a static shape.

    Computed from one row: TensorFlow would hold numbers known before it runs as a constant.
    """
    columns = math.prod(shape[1:])
    rows = tf.cast(tf.range(shape[0]), tf.uint32) * tf.constant(columns, tf.uint32) + first
    return tf.reshape(rows[:, tf.newaxis] + tf.cast(tf.range(columns), tf.uint32), shape)


def random_words(
    num_elements: int, seed: int, step: Any, tensor: tf.Tensor, stream: Any
) -> tf.Tensor:
    """Uniform 32-bit words for the elements of one tensor.

    The words are a hash of the element's index and the four numbers: equal in eager mode, in a
    graph, under XLA, and on every device; a run resumed at `step` draws the same words. Words do
    not repeat within a sequence.

    Args:
        num_elements: number of words, at most 2**31 - 1.
        seed: integer or scalar integer tensor.
        step: training step, integer or scalar int32/int64 tensor.
        tensor: index of the tensor within the model.
        stream: number of the sequence within a tensor and step (a replica, a hop).

    Returns:
        uint32 tensor [num_elements].

    Example:
    >>> words = random_words(4, seed=0, step=0, tensor=0, stream=0)
    >>> [round(word / 2**32, 3) for word in words.numpy().tolist()]
    [0.295, 0.804, 0.842, 0.156]
    """
    if num_elements < 0:
        raise ValueError(
            f"`num_elements` must be zero or a positive integer. Received: {num_elements}"
        )
    element_key, mix_key = key_schedule(seed, step, tensor, stream)
    numbers = numbers_from(element_key, [-(-num_elements // _ROW), _ROW])
    return fmix32(tf.reshape(numbers, [-1])[:num_elements], mix_key)
