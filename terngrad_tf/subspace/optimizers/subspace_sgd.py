"""P-SGD: gradient descent with momentum inside a subspace."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common.arguments import check
from terngrad_tf.common.files import PathLike
from terngrad_tf.distribute import private
from terngrad_tf.subspace.components.subspace import Subspace
from terngrad_tf.subspace.optimizers import replicas
from terngrad_tf.subspace.optimizers.basis import on_device
from terngrad_tf.subspace.optimizers.optimizer import SubspaceOptimizer, mask_padding


@keras.saving.register_keras_serializable(package="terngrad_tf")
class SubspaceSGD(SubspaceOptimizer):
    """Gradient descent with momentum along the directions of a `Subspace` (P-SGD).

    With P [k, n] the basis and g the mean gradient of the batch:

        v = momentum * v + P g
        w = w - learning_rate * P^T v

    Replicas exchange k + 1 numbers per step. Works with any model and stock `fit`; regularization
    losses count, the optimizer itself decays no weights.

    Example:
        >>> rate = keras.optimizers.schedules.PiecewiseConstantDecay([30, 50], [1.0, 0.1, 0.01])
        >>> model.compile(SubspaceSGD(subspace, rate), loss="mse")

    Args:
        subspace: `Subspace`, or path of its file.
        learning_rate: float or `keras.optimizers.schedules.LearningRateSchedule`. Default 1.0.
        momentum: float in [0, 1). Default 0.9.
        dtype: dtype of the basis on the devices. Half precision saves memory, but no time on a CPU.
            Default: the subspace's.
        shard_basis: whether each process holds only a part 1 / processes of the basis, on its first
            device, and receives two more numbers per weight and step, times (processes - 1) /
            processes. Default False.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is out of range, or the subspace does not fit the weights.

    Source: Li et al., "Low Dimensional Trajectory Hypothesis is True: DNNs Can Be Trained in Tiny
    Subspaces", TPAMI 2022.
    """

    def __init__(
        self,
        subspace: Subspace | PathLike,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1.0,
        *,
        momentum: float = 0.9,
        dtype: str | None = None,
        shard_basis: bool = False,
        name: str = "subspace_sgd",
    ) -> None:
        super().__init__(
            subspace, dtype=dtype, shard_basis=shard_basis, name=name, learning_rate=learning_rate
        )
        check(0 <= momentum < 1, "momentum", "must be in the range [0, 1)", momentum)
        self.momentum = momentum

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the velocity v, initially zero."""
        if self.built:
            return
        super().build(variables)
        self._velocity = self.add_state((self.num_components,), "velocity")

    def apply(
        self,
        grads: Sequence[tf.Tensor | None],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Takes one step; called by every replica, in replica context.

        Args:
            grads: list of gradients, None for unused weights.
            trainable_variables: the weights. Default: those of `build`.

        Raises:
            ValueError: the weights are not those of `build`, or the gradients are not theirs.
        """
        if not self.built:
            self.build(list(trainable_variables or ()))
        self.check_weights(trainable_variables)
        self.check_gradients("grads", grads)
        gradients, _ = mask_padding(grads)
        private.merge(self._step_together, gradients)

    def shared_config(self) -> dict[str, Any]:
        """Returns the arguments that all processes of a cluster share."""
        rate = keras.optimizers.Optimizer.get_config(self)["learning_rate"]
        return {**super().shared_config(), "learning_rate": rate, "momentum": self.momentum}

    def _step_together(self, strategy, gradients):
        gradient, _ = self.exchange(strategy, gradients)
        velocity = self.momentum * tf.convert_to_tensor(self._velocity) + gradient
        rate = tf.cast(tf.convert_to_tensor(self.learning_rate), tf.float32)
        moves = self._basis.back_project(strategy, -rate * velocity)
        self._velocity.assign(velocity)

        def move(copy, position):
            copy.assign_add(tf.cast(on_device(moves, copy.device)[position], copy.dtype))

        replicas.update(strategy, move, self._weights)
        self.count_step(velocity)
