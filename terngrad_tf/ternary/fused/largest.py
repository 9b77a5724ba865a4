"""The largest elements of a tensor, all of one size, found by compiled counts."""

import functools
import math

import tensorflow as tf

from terngrad_tf.ternary import random_bits
from terngrad_tf.ternary.fused import compiled

_NUM_BITS = 31  # of a float32 that is not negative
# Elements of a large tensor by which it is known which are large. A hundredth of them are 655, and
# so 4 % more or fewer are kept than asked for, or 8 %.
_SAMPLE = 2**16


def largest_as_codes(tensor: tf.Tensor, share: float) -> tf.Tensor:
    """Gives the largest elements the mean of their sizes, with their signs, and others 0.

    Elements count by `|x|`. Of n, `ceil(share * n)` are kept, and those that are as large as the
    smallest of them:

        y = sign(x) * s  where |x| >= t, else 0;  s the mean of those |x|

    That is the nearest tensor to x among those that are 0 elsewhere, and there of one size. Of more
    than 65,536 elements, t is found by so many of them, always the same, so that some more or fewer
    are kept.

    Args:
        tensor: float16, bfloat16 or float32 tensor with a static shape; computed in float32.
        share: of the elements that are kept; above 0, at most 1.

    Returns:
        Tensor of the shape and dtype of `tensor`. Where an element is NaN or infinite, others may
        be NaN.

    Raises:
        ValueError: `share` is out of range, or the shape is not static.

    Example:
    >>> largest_as_codes(tf.constant([0.5, -4.0, 2.0, 1.0]), share=0.5).numpy().tolist()
    [0.0, -3.0, 3.0, 0.0]

    Source: Sattler et al., Robust and communication-efficient federated learning from non-IID data,
    IEEE TNNLS 2020 (arXiv 1903.02891), sparse ternary compression.
    """
    if not 0 < share <= 1:
        raise ValueError(f"`share` must be above 0 and at most 1. Received: share={share}")
    tensor = tf.convert_to_tensor(tensor)
    if not math.prod(compiled.static_shape(tensor, "tensor")):
        return tensor
    kept = _keeper(share)(tf.reshape(tf.cast(tensor, tf.float32), [-1]))
    return tf.cast(tf.reshape(kept, tensor.shape), tensor.dtype)


@functools.cache
def _keeper(share):
    """The function that keeps the largest elements of a float32 vector."""

    @compiled.compiled
    def keep(vector):
        # Floats that are not negative have the order of their bits, and NaN is above all of them.
        order = tf.bitcast(tf.abs(vector), tf.int32)
        threshold = _threshold(_sample(order), share)
        kept = tf.logical_and(order >= threshold, order > 0)
        number = tf.math.count_nonzero(kept, dtype=tf.int32)
        total = tf.reduce_sum(tf.where(kept, tf.abs(vector), 0.0))
        size = total / tf.cast(tf.maximum(number, 1), tf.float32)
        return tf.where(kept, tf.sign(vector) * size, 0.0)

    return keep


def _sample(numbers):
    """The numbers of a vector at random places, or all if they are not many."""
    size = numbers.shape[0]
    if size <= _SAMPLE:
        return numbers
    words = random_bits.fmix32(tf.cast(tf.range(_SAMPLE), tf.uint32))
    return tf.gather(numbers, tf.cast(words % tf.constant(size, tf.uint32), tf.int32))


def _threshold(numbers, share):
    """The greatest number that this share of an int32 vector reaches; none is negative."""
    count = math.ceil(share * numbers.shape[0])

    def raise_threshold(bit, threshold):
        raised = threshold + tf.bitwise.left_shift(1, bit)
        reached = tf.math.count_nonzero(numbers >= raised, dtype=tf.int32)
        return bit - 1, tf.where(reached >= count, raised, threshold)

    _, threshold = tf.while_loop(
        lambda bit, threshold: bit >= 0, raise_threshold, (_NUM_BITS - 1, 0)
    )
    return threshold
