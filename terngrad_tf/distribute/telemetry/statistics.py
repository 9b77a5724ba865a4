"""Statistics of one replica's rounded gradients."""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange.observer import Observer
from terngrad_tf.distribute.exchange.plan import Plan

# Larger tensors are counted one at a time.
_LARGE = 2**20


@dataclasses.dataclass(frozen=True)
class GradientStatistics:
    """The rounded gradient of one variable in one step.

    Attributes:
        step: the optimizer's step.
        scale: the scale that all replicas shared, the largest of the blocks if gradients are
            rotated; infinite if a gradient was not finite.
        negative: number of codes below 0 on this process's first replica; codes of rotated elements
            if gradients are rotated.
        zero: number of codes that are 0.
        positive: number of codes above 0.
    """

    step: int
    scale: float
    negative: int
    zero: int
    positive: int


class Recorder:
    """Keeps the latest `GradientStatistics` of every variable, of steps divisible by `freq`."""

    def __init__(self, freq: int) -> None:
        self._freq = freq
        self.latest = {}

    def observer(self, plan: Plan) -> "_Record":
        """The observer of an exchange, unless `freq` is 0."""
        return _Record(self, self._freq, plan)


class _Record(Observer):
    """Records the buckets of an exchange in steps that are due."""

    def __init__(self, recorder, freq, plan):
        self._recorder = recorder
        self._freq = freq
        self._paths = dict(zip(plan.indices, plan.paths, strict=True))

    def scales_shared(self, bucket):
        """Adds to the step a record of the first local replica's gradients."""
        step, scales = tf.cast(bucket.step, tf.int64), _scales_of_tensors(bucket)
        # `keep` lives as long as the step, and must not hold the bucket's tensors.
        recorder, paths = self._recorder, [self._paths[i] for i in bucket.indices]

        def now():
            counts = count_codes(bucket)
            # The strategy would mirror variables.
            return tf.py_function(keep, [step, scales, counts], tf.int64)

        def keep(step, scales, counts):
            recorded = {
                path: GradientStatistics(int(step), float(scale), *map(int, row))
                for path, scale, row in zip(paths, scales.numpy(), counts.numpy(), strict=True)
            }
            recorder.latest = {**recorder.latest, **recorded}
            return step

        with tf.device(bucket.context.devices[0]):
            tf.cond(tf.equal(step % self._freq, 0), now, lambda: step)
        return bucket


def count_codes(bucket: Any) -> tf.Tensor:
    """Counts the codes of a bucket's T tensors below, at and above 0: int64 `[T, 3]`.

    Rounds the first local replica's gradients once more: the exchange makes and adds words in one
    pass.
    """
    if bucket.rotation:
        codes = _codes_of_first_replica(bucket.rotated(), range(len(bucket.rotation.sizes)))
        of_tensors = bucket.rotation.split(codes)
        none = tf.zeros([3], tf.int64)
        return tf.stack([tf.add_n([none, *map(_count_signs, pieces)]) for pieces in of_tensors])
    large = [i for i, size in enumerate(bucket.sizes) if size >= _LARGE]
    small = [i for i, size in enumerate(bucket.sizes) if size < _LARGE]
    counts, flat = {}, tf.constant([-1])
    # Together they take less tracing but more memory.
    for positions in [[i] for i in large] + [small] * bool(small):
        codes = _codes_of_first_replica(bucket, positions)
        for i, codes_of_tensor in zip(positions, codes, strict=True):
            counts[i] = _count_signs(tf.reshape(codes_of_tensor, flat))
    return tf.stack([counts[i] for i in range(len(counts))])


def _codes_of_first_replica(bucket, positions):
    return bucket.quantization.sum_codes(
        [[bucket.gradients[0][i] for i in positions]],
        tf.gather(bucket.scales, tf.constant([*positions], tf.int32)),
        step=bucket.step,
        replicas=[bucket.context.first_replica],
        num_replicas=bucket.context.num_replicas,
        tensors=[bucket.indices[i] for i in positions],
    )


def _scales_of_tensors(bucket):
    """The largest scale of each tensor, `[T]`."""
    if not bucket.rotation:
        return bucket.scales
    tensors = tf.constant(bucket.rotation.tensors_of_blocks, tf.int32)
    scales = tf.math.unsorted_segment_max(bucket.scales, tensors, len(bucket.sizes))
    return tf.maximum(scales, 0.0)  # without blocks it is the lowest float


# One function for tensors of all sizes.
@functools.partial(
    tf.function, input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False
)
def _count_signs(codes):
    """Numbers of codes below, at and above 0: int64 `[3]`."""
    signs = tf.sign(codes)
    return tf.stack([tf.math.count_nonzero(tf.equal(signs, sign)) for sign in (-1, 0, 1)])
