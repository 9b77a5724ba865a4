"""The largest elements of tensors, of one size in each of them, found by compiled counts."""

import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad_tf.ternary.fused import compiled

_NUM_BITS = 31  # of a float32 that is not negative
# Elements by which it is known what is large. A hundredth of them are 655, so that 4 % more or
# fewer than a hundredth are kept, or 8 %.
_SAMPLE = 2**16


def largest_as_codes(tensors: Sequence[tf.Tensor], share: float) -> list[tf.Tensor]:
    """Gives the largest elements of each tensor the mean of their sizes, and others 0.

    Of the n elements of all tensors together, `ceil(share * n)` are kept, and those that are as
    large as the smallest of them:

        y = sign(x) * s  where |x| >= t, else 0

    with one t for all tensors, and s the mean of those |x| of the tensor, the nearest to them of
    all single sizes. Of more than 65,536 elements, t is found by so many, always the same, so that
    some more or fewer are kept.

    Args:
        tensors: list of float16, bfloat16 or float32 tensors with static shapes; computed in
            float32.
        share: of the elements that are kept; above 0, at most 1.

    Returns:
        List of tensors of the shapes and dtypes of `tensors`. Where an element is NaN or infinite,
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
    """The function of vectors to the bits of the size that this share of their elements reaches."""
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

        # The greatest that so many reach, bit by bit.
        _, threshold = tf.while_loop(
            lambda bit, threshold: bit >= 0, raise_threshold, (_NUM_BITS - 1, 0)
        )
        return threshold

    return find


def _places_of_sample(sizes):
    """Places in vectors of these sizes, an int32 array each: random ones, or all of few."""
    total = sum(sizes)
    places = np.arange(total)
    if total > _SAMPLE:
        # A generator whose numbers no release changes.
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
    """Bits of `|x|`, int32: those of floats that are not negative have their order.

    NaN is above all.
    """
    return tf.bitcast(tf.abs(vector), tf.int32)
