"""Largest elements of tensors, set to one magnitude per tensor, found by compiled counts."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary.fused import compiled

_NUM_BITS = 31  # of a non-negative float32
# A hundredth of the sample is 655 elements: their number varies by 4 % (one deviation).
_SAMPLE = 2**16


def largest_as_codes(tensors: Sequence[tf.Tensor], share: float) -> list[tf.Tensor]:
    """Sets the largest elements of each tensor to their mean magnitude, and all others to 0.

    Keeps the `ceil(share * n)` largest of the n elements of all tensors together, and ties:

        y = sign(x) * s  if |x| >= t, else 0

    with one t for all tensors, and s the mean of the tensor's kept |x|. For more than 65,536
    elements, t is found from a fixed sample of this size, so that the number kept varies slightly.

    Args:
        tensors: list of float16, bfloat16 or float32 tensors with static shapes; computed in
            float32.
        share: fraction of the elements to keep, in (0, 1].

    Returns:
        List of tensors with the shapes and dtypes of `tensors`. If an element is NaN or infinite,
        others may be NaN.

    Raises:
        ValueError: `share` is out of range, or a shape is not static.

    Example:
    >>> [y.numpy().tolist() for y in largest_as_codes(
    ...     [tf.constant([0.5, -4.0, 2.0]), tf.constant([1.0])], share=0.5)]
    [[0.0, -3.0, 3.0], [0.0]]

    Source: Sattler et al., Robust and communication-efficient federated learning from non-IID data,
    IEEE TNNLS 2020 (arXiv 1903.02891), sparse ternary compression.
    """
    if not 0 < share <= 1:
        raise ValueError(f"`share` must be above 0 and at most 1. Received: share={share}")
    tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
    sizes = tuple(math.prod(compiled.static_shape(tensor, "tensors")) for tensor in tensors)
    if not sum(sizes):
        return tensors
    flat = [tf.reshape(tf.cast(tensor, tf.float32), [-1]) for tensor in tensors]
    threshold = _threshold_finder(sizes, share)(flat)
    return [
        tf.cast(tf.reshape(_keep(vector, threshold), tensor.shape), tensor.dtype)
        for vector, tensor in zip(flat, tensors, strict=True)
    ]


@functools.cache
def _threshold_finder(sizes, share):
    """Returns a function of vectors to the bits of the magnitude that this share reaches."""
    places = _places_of_sample(sizes)
    count = math.ceil(share * sum(map(len, places)))

    @compiled.compiled
    def find(vectors):
        sample = tf.concat(
            [tf.gather(_order(v), p) for v, p in zip(vectors, places, strict=True) if len(p)], 0
        )

        def raise_threshold(bit, threshold):
            raised = threshold + tf.bitwise.left_shift(1, bit)
            reached = tf.math.count_nonzero(sample >= raised, dtype=tf.int32)
            return bit - 1, tf.where(reached >= count, raised, threshold)

        # Largest threshold that `count` elements reach, bit by bit.
        _, threshold = tf.while_loop(
            lambda bit, threshold: bit >= 0, raise_threshold, (_NUM_BITS - 1, 0)
        )
        return threshold

    return find


def _places_of_sample(sizes):
    """Returns positions in vectors of these sizes, an int32 array each: random, or all if few."""
    total = sum(sizes)
    places = np.arange(total)
    if total > _SAMPLE:
        # This generator's numbers do not change between releases.
        places = np.sort(np.random.RandomState(0).randint(total, size=_SAMPLE))
    ends = np.cumsum(sizes)
    parts = np.split(places, np.searchsorted(places, ends[:-1]))
    return [
        (part - end + size).astype(np.int32)
        for part, end, size in zip(parts, ends, sizes, strict=True)
    ]


@compiled.compiled
def _keep(vector, threshold):
    order = _order(vector)
    kept = tf.logical_and(order >= threshold, order > 0)
    number = tf.math.count_nonzero(kept, dtype=tf.int32)
    total = tf.reduce_sum(tf.where(kept, tf.abs(vector), 0.0))
    size = total / tf.cast(tf.maximum(number, 1), tf.float32)
    return tf.where(kept, tf.sign(vector) * size, 0.0)


def _order(vector):
    """Returns the bits of `|x|`, int32, which order non-negative floats; NaN is largest."""
    return tf.bitcast(tf.abs(vector), tf.int32)
