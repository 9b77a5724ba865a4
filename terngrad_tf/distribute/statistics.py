"""How one replica's gradients were rounded, recorded now and then."""

import dataclasses

import tensorflow as tf

from terngrad_tf import ternary


@dataclasses.dataclass(frozen=True)
class GradientStatistics:
    """The ternary gradient of one variable in one step.

    Attributes:
        step: the optimizer's step.
        scale: the scale that all replicas shared; infinite where a gradient was not finite.
        negative: number of elements whose code was -1 on this process's first replica.
        zero: number of elements whose code was 0.
        positive: number of elements whose code was 1.
    """

    step: int
    scale: float
    negative: int
    zero: int
    positive: int


class Recorder:
    """Keeps the latest `GradientStatistics` of every variable.

    Args:
        every: recorded are the steps divisible by this number; 0 for none.
    """

    def __init__(self, every):
        self._every = every
        self.latest = {}

    def record(self, paths, gradients, scales, indices, step, context, options):
        """Records T tensors of one replica, if it is time. Adds to the graph under construction.

        Args:
            paths: T paths of the variables.
            gradients: T tensors of the first local replica.
            scales: float32 tensor of shape [T], shared by all replicas.
            indices: T integers that select the random bits of each tensor.
            step: scalar integer tensor.
            context: `exchange.ReductionContext`.
            options: object with the attributes of `TernaryAllReduce`.
        """
        if not self._every:
            return
        step = tf.cast(step, tf.int64)

        def now():
            counts = []
            # Rounded once more, apart from the words that travel: those are made and added in one
            # pass that nobody may look into.
            for position, gradient in enumerate(gradients):
                codes = ternary.ternarize(
                    gradient,
                    scales[position],
                    seed=options.seed,
                    step=step,
                    tensor=indices[position],
                    replica=context.first_replica,
                    num_replicas=context.num_replicas,
                    rounding=options.rounding,
                )
                counts.append([tf.math.count_nonzero(tf.equal(codes, c)) for c in (-1, 0, 1)])
            # A Python function rather than variables, which could not be made here: the strategy
            # would mirror them.
            return tf.py_function(keep, [step, scales, tf.stack(counts)], tf.int64)

        def keep(step, scales, counts):
            recorded = {
                path: GradientStatistics(int(step), float(scale), *map(int, row))
                for path, scale, row in zip(paths, scales.numpy(), counts.numpy(), strict=True)
            }
            self.latest = {**self.latest, **recorded}
            return step

        tf.cond(tf.equal(step % self._every, 0), now, lambda: step)
