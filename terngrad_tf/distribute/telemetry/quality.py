"""Distance of the sum of ternary gradients from the sum of float gradients."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.telemetry import statistics
from terngrad_tf.ternary import random_bits
from terngrad_tf.ternary.fused import compiled

# A sketch's squared length is off by sqrt(2 / size), 1.6 %.
_SKETCH = 8190
# Gradients use the random bits of tensors 0 and up, the way back those of -1.
_FIRST_TENSOR = -2
_SIGN_BIT = 2**31


def measure(buckets: Sequence[Any], sums: Sequence[Any]) -> tf.Tensor:
    """Compares the reduced gradients of a step, r, with the sum of the replicas' float ones, g.

    In one process the result is exact. Several sum their parts of `r.g`, and estimate the lengths
    of g and r - g by sketches, which they sum: each adds its elements, with shared random signs,
    into 8,190 numbers.

    Args:
        buckets: list of `exchange.Bucket`.
        sums: the T reduced tensors of each bucket, on the first local device.

    Returns:
        float64 `[3]`, NaN if undefined: the share of non-zero codes of each process's first
        replica, the cosine `r.g / (|r| |g|)`, and the relative error `|r - g| / |g|`.

    Source: Alon, Matias and Szegedy, The space complexity of approximating the frequency moments,
    STOC 1996.
    """
    context = buckets[0].context
    largest = tf.reduce_max([tf.reduce_max(bucket.scales) for bucket in buckets])
    # Keeps squares within the range of float32.
    unit = tf.where(largest > 0, largest, tf.ones_like(largest))

    def flat(tensors):
        one_axis = tf.constant([-1])
        vectors = [tf.cast(tf.reshape(tensor, one_axis), tf.float32) for tensor in tensors]
        return tf.concat(vectors, 0) / unit

    own = [tf.add_n([flat(of_replica) for of_replica in bucket.gradients]) for bucket in buckets]
    reduced = [flat(tensors) for tensors in sums]
    products = _total(_dot(r, g) for r, g in zip(reduced, own, strict=True))
    reduced_square = _total(_dot(r, r) for r in reduced)
    counts = [tf.cast(statistics.count_codes(bucket), tf.float32) for bucket in buckets]
    zeros = tf.add_n([tf.reduce_sum(count[:, 1]) for count in counts])
    share = 1 - zeros / tf.add_n([tf.reduce_sum(count) for count in counts])
    if context.processes is None:
        square = _total(_dot(g, g) for g in own)
        error = _total(_dot(r - g, r - g) for r, g in zip(reduced, own, strict=True))
    else:
        sketch = _sketched(own, buckets)
        message = tf.concat([sketch, tf.stack([tf.cast(products, tf.float32), share])], 0)
        message = context.processes.all_reduce_sum(message)
        sketch, products, share = message[:-2], message[-2], message[-1] / context.processes.size
        square = _dot(sketch, sketch)
        difference = _sketched(reduced, buckets) - sketch
        error = _dot(difference, difference)
    products, square, error, reduced_square, share = (
        tf.cast(value, tf.float64) for value in (products, square, error, reduced_square, share)
    )
    cosine = tf.clip_by_value(products / tf.sqrt(reduced_square * square), -1.0, 1.0)
    return tf.stack([share, cosine, tf.sqrt(error / square)])


def _dot(x, y):
    return tf.reduce_sum(x * y)


def _total(values):
    """Sum in float64, since one bucket may be much larger than the others."""
    return tf.add_n([tf.cast(value, tf.float64) for value in values])


def _sketched(vectors, buckets):
    """Sum of the sketches of the buckets' vectors, float32 `[_SKETCH]`."""
    sketches = []
    for number, (vector, bucket) in enumerate(zip(vectors, buckets, strict=True)):
        seed, step = bucket.quantization.seed, tf.cast(bucket.step, tf.int64)
        keys = _keys(tf.constant(seed, tf.int64), step, tf.constant(_FIRST_TENSOR - number))
        sketches.append(_sketch(vector, *keys))
    return tf.add_n(sketches)


@compiled.compiled
def _keys(seed, step, tensor):
    return random_bits.key_schedule(seed, step, tensor, 0)


@compiled.compiled
def _sketch(vector, element_key, mix_key):
    """Adds elements `_SKETCH` apart, each with a random sign; float32 `[n]` -> `[_SKETCH]`."""
    size = vector.shape[0]
    rows = tf.reshape(tf.pad(vector, [[0, -size % _SKETCH]]), [-1, _SKETCH])
    words = random_bits.fmix32(random_bits.numbers_from(element_key, rows.shape), mix_key)
    signs = tf.bitwise.bitwise_and(words, tf.constant(_SIGN_BIT, tf.uint32))
    signed = tf.bitwise.bitwise_xor(tf.bitcast(rows, tf.uint32), signs)
    return tf.reduce_sum(tf.bitcast(signed, tf.float32), axis=0)
