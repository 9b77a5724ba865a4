"""Steps along the part of the gradient outside of a subspace."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.subspace.optimizers import replicas
from terngrad_tf.subspace.optimizers.basis import ReplicatedBasis, on_device, to_float32
from terngrad_tf.subspace.optimizers.sharded_basis import ShardedBasis


class Residual:
    """Gradient descent with momentum outside of a subspace, in every `every`-th step.

        m = momentum m + (g - P^T P g)
        w = w - learning_rate m

    g is the sum of the replicas' gradients as the strategy delivers it, ternary or exact: projected
    after the exchange, so that rounding does not affect the subspace. Other steps exchange nothing
    and keep m and w.

    Args:
        optimizer: its `iterations` count the steps.
        velocity: m, variables with the weights' shapes.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        basis: ReplicatedBasis | ShardedBasis,
        weights: Sequence[keras.Variable],
        velocity: Sequence[Any],
        *,
        learning_rate: float,
        momentum: float,
        every: int,
    ) -> None:
        self._optimizer = optimizer
        self._basis = basis
        self._weights = weights
        self._velocity = velocity
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._every = every

    def step(self, strategy: tf.distribute.Strategy, gradients: Sequence[Any]) -> None:
        """Takes a step if one is due; in cross-replica context.

        Args:
            gradients: per-replica gradients, None for unused weights.
        """
        if self._every == 1:
            self._move(strategy, gradients)
            return

        def move():
            self._move(strategy, gradients)
            return tf.constant(0)

        due = tf.equal(tf.convert_to_tensor(self._optimizer.iterations) % self._every, 0)
        tf.cond(due, move, lambda: tf.constant(0))

    def _move(self, strategy, gradients):
        sums = strategy.extended.call_for_each_replica(self._sum_of_replicas, args=(gradients,))
        inside = self._basis.project(strategy, [replicas.local(strategy, s)[0] for s in sums])
        inside = self._basis.back_project(strategy, inside)
        sums = [replicas.by_device(strategy, s) for s in sums]

        def move(copy, position, velocity):
            gradient = to_float32(on_device(sums[position], copy.device)[0])
            outside = gradient - on_device(inside, copy.device)[position]
            new = self._momentum * to_float32(velocity) + outside
            velocity.assign(tf.cast(new, velocity.dtype))
            copy.assign_sub(tf.cast(self._learning_rate * new, copy.dtype))

        replicas.update(strategy, move, self._weights, self._velocity)

    def _sum_of_replicas(self, gradients):
        given = [
            tf.zeros(v.shape, v.dtype) if g is None else g
            for g, v in zip(gradients, self._weights, strict=True)
        ]
        return private.sum_gradients(self._optimizer, given, self._weights)
