"""Learning rates over training steps, by name."""

from typing import Any

import keras

from terngrad_tf.common.arguments import as_fraction, check, did_you_mean
from terngrad_tf.training.configs.model_config import OptimizerConfig


@keras.saving.register_keras_serializable(package="terngrad_tf")
class Constant(keras.optimizers.schedules.LearningRateSchedule):
    """The same rate at every step.

    Keras would store a float as a variable in the checkpoint, which would then override the flag.
    """

    def __init__(self, learning_rate: float):
        super().__init__()
        self.learning_rate = learning_rate

    def __call__(self, step: Any) -> Any:
        return keras.ops.convert_to_tensor(self.learning_rate, "float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal schedule."""
        return {"learning_rate": self.learning_rate}


@keras.saving.register_keras_serializable(package="terngrad_tf")
class Linear(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that rises linearly from 0 to `peak`, then falls linearly to 0 and stays there.

    `peak * t / w` at step t below w, else `peak * max(0, 1 - (t - w) / (d - w))`.

    Args:
        warmup_steps: w, at least 0.
        decay_steps: d, above w.
    """

    def __init__(self, peak: float, warmup_steps: float, decay_steps: float):
        super().__init__()
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.decay_steps = decay_steps

    def __call__(self, step: Any) -> Any:
        step = keras.ops.cast(step, "float32")
        warmup, span = self.warmup_steps, self.decay_steps - self.warmup_steps
        falling: Any = keras.ops.maximum(1.0 - (step - warmup) / span, 0.0)
        if not warmup:
            return self.peak * falling
        rate: Any = keras.ops.where(step < warmup, step / warmup, falling)
        return self.peak * rate

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of an equal schedule."""
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "decay_steps": self.decay_steps,
        }


def available() -> list[str]:
    """Returns the names of decay types for `build_schedule`, sorted."""
    return ["exponential", "fixed", "linear", "polynomial"]


def build_schedule(
    config: OptimizerConfig, *, max_steps: int, steps_per_epoch: float
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Creates the learning rate of step t, counted from 0.

    The configuration's `learning_rate_decay_type` selects the rule:

    - "fixed": `initial_learning_rate`.
    - "exponential": `initial_learning_rate * learning_rate_decay_factor ** floor(t / d)` with
      `d = floor(steps_per_epoch * num_epochs_per_decay)`.
    - "linear": from 0 to `initial_learning_rate` over `warmup_epochs`, then to 0 at
      `decay_epochs` or else `max_steps`, see `Linear`.
    - "polynomial": `initial_learning_rate * sqrt(1 - t / max_steps)`.

    Adam scales its steps itself: its rate is fixed, as in the TernGrad experiments.

    Example:
        >>> from terngrad_tf.training.configs.model_config import OptimizerConfig
        >>> config = OptimizerConfig(learning_rate_decay_type="polynomial")
        >>> round(float(build_schedule(config, max_steps=100, steps_per_epoch=10.0)(75)), 6)
        0.005
    """
    decay_type, rate = config.learning_rate_decay_type, config.initial_learning_rate
    if decay_type not in available():
        hint = did_you_mean(decay_type, available())
        raise ValueError(
            f"`learning_rate_decay_type` must be one of {', '.join(available())}. "
            f"Received: learning_rate_decay_type={decay_type!r}{hint}"
        )
    if decay_type == "fixed" or config.name == "adam":
        return Constant(rate)
    if decay_type == "linear":
        end, warmup_steps = config.decay_epochs, config.warmup_epochs * steps_per_epoch
        decay_steps = max_steps if end is None else end * steps_per_epoch
        last = f"{decay_steps / steps_per_epoch:g} epochs"
        rule = f"must be at least 0 and end before the decay does, {last}"
        check(warmup_steps < decay_steps, "warmup_epochs", rule, config.warmup_epochs)
        return Linear(rate, warmup_steps, decay_steps)
    if decay_type == "polynomial":
        return keras.optimizers.schedules.PolynomialDecay(
            rate, decay_steps=max_steps, end_learning_rate=0.0, power=0.5
        )
    factor = config.learning_rate_decay_factor
    check(factor, "learning_rate_decay_factor", "must be a finite number above 0", factor)
    decay_steps = int(as_fraction(steps_per_epoch) * as_fraction(config.num_epochs_per_decay))
    if decay_steps < 1:
        raise ValueError(
            "`num_epochs_per_decay` must span at least one step. "
            f"Received: num_epochs_per_decay={config.num_epochs_per_decay!r} "
            f"with {steps_per_epoch:g} steps an epoch"
        )
    return keras.optimizers.schedules.ExponentialDecay(rate, decay_steps, factor, staircase=True)
