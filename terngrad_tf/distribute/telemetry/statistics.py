"""How one replica's gradients were rounded, recorded now and then."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# Elements from which on a tensor's codes are counted by themselves.
_LARGE = 2**20


@dataclasses.dataclass(frozen=True)
class GradientStatistics:
    """The rounded gradient of one variable in one step.

    Attributes:
        step: the optimizer's step.
        scale: the scale that all replicas shared, of rotated gradients the largest of its blocks;
            infinite where a gradient was not finite.
        negative: number of elements whose code was below 0 on this process's first replica.
        zero: number of elements whose code was 0. Rotated gradients' codes are those of rotated
            elements.
        positive: number of elements whose code was above 0.
    """

    step: int
    scale: float
    negative: int
    zero: int
    positive: int


class Recorder:
    """Keeps the latest `GradientStatistics` of every variable.

    Args:
        freq: recorded are the steps divisible by this number; 0 for none.
    """

    def __init__(self, freq: int) -> None:
        self._freq = freq
        self.latest = {}

    def record(self, paths: Sequence[Any], bucket: Any) -> tf.Tensor | None:
        """Records T tensors of one replica, if it is time. Adds to the graph under construction.

        Args:
            paths: T paths of the variables.
            bucket: `exchange.Bucket` of their gradients; the first local replica's count.
        """
        if not self._freq:
            return
        step, scales = tf.cast(bucket.step, tf.int64), _scales_of_tensors(bucket)

        def now():
            counts = count_codes(bucket)
            # A Python function rather than variables, which could not be made here: the strategy
            # would mirror them.
            return tf.py_function(keep, [step, scales, counts], tf.int64)

        def keep(step, scales, counts):
            recorded = {
                path: GradientStatistics(int(step), float(scale), *map(int, row))
                for path, scale, row in zip(paths, scales.numpy(), counts.numpy(), strict=True)
            }
            self.latest = {**self.latest, **recorded}
            return step

        with tf.device(bucket.context.devices[0]):
            tf.cond(tf.equal(step % self._freq, 0), now, lambda: step)


def count_codes(bucket: Any) -> tf.Tensor:
    """How many codes of each tensor are below, at and above 0 on the first local replica.

    Rounded once more, apart from the words that travel: those are made and added in one pass that
    nobody may look into.

    Args:
        bucket: `exchange.Bucket`.

    Returns:
        int64 tensor of shape [T, 3].
    """
    if bucket.rotation:
        return _count_rotated(bucket)
    large = [i for i, size in enumerate(bucket.sizes) if size >= _LARGE]
    small = [i for i, size in enumerate(bucket.sizes) if size < _LARGE]
    counts, flat = {}, tf.constant([-1])
    # Small ones together, as each of many would take as long to trace. They are held all at once.
    for positions in [[i] for i in large] + [small] * bool(small):
        codes = bucket.quantization.sum_codes(
            [[bucket.gradients[0][i] for i in positions]],
            tf.gather(bucket.scales, tf.constant(positions)),
            step=bucket.step,
            replicas=[bucket.context.first_replica],
            num_replicas=bucket.context.num_replicas,
            tensors=[bucket.indices[i] for i in positions],
        )
        for i, codes_of_tensor in zip(positions, codes, strict=True):
            counts[i] = _count_signs(tf.reshape(codes_of_tensor, flat))
    return tf.stack([counts[i] for i in range(len(counts))])


def _scales_of_tensors(bucket):
    """The largest scale of each tensor, `[T]`."""
    if not bucket.rotation:
        return bucket.scales
    tensors = tf.constant(bucket.rotation.tensors_of_blocks, tf.int32)
    scales = tf.math.unsorted_segment_max(bucket.scales, tensors, len(bucket.sizes))
    return tf.maximum(scales, 0.0)  # of none it is the least of all numbers


def _count_rotated(bucket):
    rotated = bucket.rotated()
    codes = bucket.quantization.sum_codes(
        [rotated.gradients[0]],
        rotated.scales,
        step=bucket.step,
        replicas=[bucket.context.first_replica],
        num_replicas=bucket.context.num_replicas,
        tensors=rotated.indices,
    )
    return tf.stack(
        [
            tf.add_n([_count_signs(piece) for piece in pieces] or [tf.zeros([3], tf.int64)])
            for pieces in bucket.rotation.split(codes)
        ]
    )


# One function for tensors of all sizes.
@functools.partial(
    tf.function, input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False
)
def _count_signs(codes):
    """Codes below 0, at 0 and above: int64 `[3]`."""
    signs = tf.sign(codes)
    return tf.stack([tf.math.count_nonzero(tf.equal(signs, sign)) for sign in (-1, 0, 1)])
