"""How one replica's gradients were rounded, recorded now and then."""

import dataclasses
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
        scale: the scale that all replicas shared; infinite where a gradient was not finite.
        negative: number of elements whose code was below 0 on this process's first replica.
        zero: number of elements whose code was 0.
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
        step, scales = tf.cast(bucket.step, tf.int64), bucket.scales

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
    gradients, replica = bucket.gradients[0], bucket.context.first_replica
    options = {"step": bucket.step, "num_replicas": bucket.context.num_replicas}
    small = [i for i, size in enumerate(bucket.sizes) if size < _LARGE]
    # Together, as each of many would take as long to trace. They are held all at once.
    codes = dict(
        zip(
            small,
            bucket.quantization.sum_codes(
                [[gradients[i] for i in small]],
                tf.gather(bucket.scales, tf.constant(small, tf.int32)),
                replicas=[replica],
                tensors=[bucket.indices[i] for i in small],
                **options,
            ),
            strict=True,
        )
    )
    counts = []
    for position, gradient in enumerate(gradients):
        if position not in codes:
            codes[position] = bucket.quantization.ternarize(
                gradient,
                bucket.scales[position],
                tensor=bucket.indices[position],
                replica=replica,
                **options,
            )
        signs = tf.sign(codes[position])
        counts.append([tf.math.count_nonzero(tf.equal(signs, sign)) for sign in (-1, 0, 1)])
    return tf.stack(counts)
