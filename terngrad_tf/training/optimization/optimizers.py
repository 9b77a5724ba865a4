"""The optimizers of the TernGrad experiments, by name, with moving averages that warm up."""

import typing
from typing import Any

import keras

from terngrad_tf.common.arguments import check, did_you_mean
from terngrad_tf.distribute import AbsAdam, DiLoCo
from terngrad_tf.distribute.slots import Slots

EMA_MOMENTUM = 0.9999
# Keras' inferred types of results do not support arithmetic.
_ops: typing.Any = keras.ops


def warm_up_momentum(limit: Any, n: Any) -> Any:
    """Returns `min(limit, (1 + n) / (10 + n))`, the fraction of averages to keep at step n.

    Example:
        >>> float(warm_up_momentum(0.9999, 0)), float(warm_up_momentum(0.5, 90))
        (0.10000000149011612, 0.5)
    """
    return _ops.minimum(limit, (1 + n) / (10 + n))


class _WarmUpAverage(keras.optimizers.Optimizer):
    """Makes `use_ema` follow `min(ema_momentum, (1 + n) / (10 + n))` at step n.

    A constant 0.9999 would keep the average near the initial weights for 10,000 steps.
    """

    @property
    def ema_momentum(self):
        return warm_up_momentum(self._ema_limit, _ops.cast(self.iterations, "float32"))

    @ema_momentum.setter
    def ema_momentum(self, value):
        self._ema_limit = value

    def get_config(self):
        # Keras reads the property; the configuration needs the limit.
        return {**super().get_config(), "ema_momentum": self._ema_limit}


@keras.saving.register_keras_serializable(package="terngrad_tf")
class Momentum(_WarmUpAverage):
    """Momentum with the learning rate outside the accumulator.

    `a = momentum * a + g`, `w = w - learning_rate * a`. `keras.optimizers.SGD` has the rate inside
    the accumulator, which differs when the rate changes.

    Source:
        Sutskever et al., "On the importance of initialization and momentum in deep learning",
        ICML 2013, in the form of `tf.compat.v1.train.MomentumOptimizer`.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        momentum: float = 0.9,
        name: str = "momentum",
        **kwargs: Any,
    ):
        _check_momentum(momentum)
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum = momentum

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates one accumulator per variable, initially zero."""
        if self.built:
            return
        super().build(variables)
        self._accumulators: list[typing.Any] = [
            self.add_variable_from_reference(variable, name="accumulator") for variable in variables
        ]
        self._slots = Slots(variables, self._accumulators)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Applies one gradient to its variable."""
        (accumulator,) = self._slots.of(variable)
        gradient = _ops.cast(gradient, variable.dtype)
        learning_rate = _ops.cast(learning_rate, variable.dtype)
        self.assign(accumulator, self.momentum * accumulator + gradient)
        self.assign_sub(variable, learning_rate * accumulator)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal optimizer."""
        return {**super().get_config(), "momentum": self.momentum}


@keras.saving.register_keras_serializable(package="terngrad_tf")
class RMSProp(_WarmUpAverage):
    """RMSProp with a mean square that starts at 1 and an epsilon inside the root.

    `ms = decay * ms + (1 - decay) * g**2`,
    `a = momentum * a + learning_rate * g / sqrt(ms + epsilon)`, `w = w - a`.

    Source:
        Tieleman and Hinton, "Lecture 6.5 - RMSProp", 2012, in the form of
        `tf.compat.v1.train.RMSPropOptimizer`.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.01,
        decay: float = 0.9,
        momentum: float = 0.9,
        epsilon: float = 1.0,
        name: str = "rmsprop",
        **kwargs: Any,
    ):
        _check_momentum(momentum)
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.decay = decay
        self.momentum = momentum
        self.epsilon = epsilon

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates each variable's mean square, initially one, and accumulator, initially zero."""
        if self.built:
            return
        super().build(variables)
        self._mean_squares: list[typing.Any] = [
            self.add_variable_from_reference(variable, name="mean_square", initializer="ones")
            for variable in variables
        ]
        self._accumulators: list[typing.Any] = [
            self.add_variable_from_reference(variable, name="accumulator") for variable in variables
        ]
        self._slots = Slots(variables, self._mean_squares, self._accumulators)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Applies one gradient to its variable."""
        mean_square, accumulator = self._slots.of(variable)
        gradient = _ops.cast(gradient, variable.dtype)
        learning_rate = _ops.cast(learning_rate, variable.dtype)
        self.assign(
            mean_square,
            self.decay * mean_square + (1 - self.decay) * _ops.square(gradient),
        )
        self.assign(
            accumulator,
            self.momentum * accumulator
            + learning_rate * gradient / _ops.sqrt(mean_square + self.epsilon),
        )
        self.assign_sub(variable, accumulator)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal optimizer."""
        return {
            **super().get_config(),
            "decay": self.decay,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
        }


@keras.saving.register_keras_serializable(package="terngrad_tf")
class Adam(_WarmUpAverage, keras.optimizers.Adam):
    """`keras.optimizers.Adam` with moving averages that warm up."""


@keras.saving.register_keras_serializable(package="terngrad_tf")
class AveragedAbsAdam(_WarmUpAverage, AbsAdam):
    """`terngrad_tf.AbsAdam` with moving averages that warm up."""


@keras.saving.register_keras_serializable(package="terngrad_tf")
class GradientDescent(_WarmUpAverage, keras.optimizers.SGD):
    """`w = w - learning_rate * g`, with moving averages that warm up."""


_BUILDERS = {
    "abs_adam": lambda rate, momentum, **kwargs: AveragedAbsAdam(rate, epsilon=1e-8, **kwargs),
    "adam": lambda rate, momentum, **kwargs: Adam(rate, epsilon=1e-8, **kwargs),
    "gd": lambda rate, momentum, **kwargs: GradientDescent(rate, **kwargs),
    "momentum": lambda rate, momentum, **kwargs: Momentum(rate, momentum, **kwargs),
    "rmsprop": lambda rate, momentum, **kwargs: RMSProp(rate, momentum=momentum, **kwargs),
}


def available() -> list[str]:
    """Returns the names for `build_optimizer`, sorted."""
    return sorted(_BUILDERS)


def build_optimizer(
    name: str,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    momentum: float = 0.9,
    loss_scale: float | None = None,
    averages: bool = True,
) -> keras.optimizers.Optimizer:
    """Creates an optimizer that also keeps moving averages of the weights (limit 0.9999).

    Args:
        name: "momentum", "adam" or "abs_adam" (epsilon 1e-8), "gd" or "rmsprop" (decay 0.9, epsilon
            1).
        momentum: number in [0, 1], used by "momentum" and "rmsprop".
        loss_scale: factor of the loss, by which gradients are divided again.

    Example:
        >>> build_optimizer("momentum", 0.01).name
        'momentum'
    """
    if name not in _BUILDERS:
        hint = did_you_mean(name, available())
        raise ValueError(
            f"`optimizer` must be one of {', '.join(available())}. "
            f"Received: optimizer={name!r}{hint}"
        )
    _check_momentum(momentum)
    return _BUILDERS[name](
        learning_rate,
        momentum,
        use_ema=averages,
        ema_momentum=EMA_MOMENTUM,
        loss_scale_factor=loss_scale,
    )


def build_local_steps(
    inner: keras.optimizers.Optimizer,
    sync_every: int | None,
    fragments: int,
    learning_rate: float,
    momentum: float,
    **options: Any,
) -> DiLoCo:
    """Wraps an optimizer for local steps; moving averages follow the exchanged weights.

    Args:
        inner: without moving averages.
        sync_every: steps between exchanges of a weight; None if time decides.
        **options: `sync_seconds`, `overlap` and `alpha` of `DiLoCo`.
    """
    # If time decides, averages count steps.
    interval = sync_every // fragments if sync_every else 1
    outer = build_outer(interval, learning_rate, momentum)
    return DiLoCo(inner, sync_every, outer=outer, fragments=fragments, **options)


def build_outer(interval: int, learning_rate: float, momentum: float) -> GradientDescent:
    """Creates the outer optimizer for exchanges every `interval` steps."""
    return GradientDescent(
        learning_rate,
        momentum=momentum,
        nesterov=momentum > 0,
        use_ema=True,
        # Decays the average as `interval` single steps would.
        ema_momentum=EMA_MOMENTUM**interval,
    )


def _check_momentum(momentum):
    check(0 <= momentum <= 1, "momentum", "must be in the range [0, 1]", momentum)
