"""Adam for rounded gradients: `AbsAdam`."""

from collections.abc import Sequence
from typing import Any

import keras

from terngrad_tf.common.arguments import check
from terngrad_tf.distribute.slots import Slots

# Keras' inferred types refuse arithmetic.
_ops: Any = keras.ops


@keras.saving.register_keras_serializable(package="terngrad_tf")
class AbsAdam(keras.optimizers.Adam):
    """Adam that divides by the mean size of gradients instead of the root of their mean square.

        m = beta_1 m + (1 - beta_1) g
        a = beta_2 a + (1 - beta_2) |g|
        w = w - learning_rate * (m / (1 - beta_1^t)) / (a / (1 - beta_2^t) + epsilon)

    This is Adam with the norm L^p of p = 1, where p = 2 is `Adam` and p = infinity `Adamax`. It
    suits ternary gradients: rounding keeps an element's mean size (a code is 1 with probability |g|
    / s and then counts s), but raises its mean square from g^2 to s |g|. Adam therefore takes
    shorter steps, by a factor that differs between elements, and trains more slowly at the same
    learning rate.

    The arguments are those of `keras.optimizers.Adam`, with its defaults, except `amsgrad`.
    Learning rates for Adam suit this optimizer, too.

    Raises:
        ValueError: `amsgrad` is true.

    Source: Kingma and Ba, Adam: A method for stochastic optimization, ICLR 2015 (arXiv 1412.6980),
    section 7.1.
    """

    def __init__(self, learning_rate: Any = 0.001, *, name: str = "abs_adam", **kwargs: Any):
        super().__init__(learning_rate, name=name, **kwargs)
        check(not self.amsgrad, "amsgrad", "must be False", self.amsgrad)

    def build(self, variables: Sequence[Any]) -> None:
        """Creates each variable's m and a, initially zero."""
        if self.built:
            return
        # Not `Adam.build`, whose slots have no public name. Checkpoints contain the names.
        keras.optimizers.Optimizer.build(self, variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        self._slots = Slots(variables, self._momentums, self._velocities)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Applies one gradient of the variable's shape to the variable."""
        mean, size = self._slots.of(variable)
        gradient = _ops.cast(gradient, variable.dtype)
        step = _ops.cast(self.iterations + 1, variable.dtype)
        # Keras' functions accept gradients of some rows.
        self.assign_add(mean, (1 - self.beta_1) * _ops.subtract(gradient, mean))
        self.assign_add(size, (1 - self.beta_2) * _ops.subtract(_ops.abs(gradient), size))
        mean_part = 1 - _ops.power(_ops.cast(self.beta_1, variable.dtype), step)
        size_part = 1 - _ops.power(_ops.cast(self.beta_2, variable.dtype), step)
        rate = _ops.cast(learning_rate, variable.dtype) / mean_part
        self.assign_sub(variable, rate * mean / (size / size_part + self.epsilon))
