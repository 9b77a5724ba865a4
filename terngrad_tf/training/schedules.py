"""Learning rates over training steps, by name."""

import keras

from terngrad_tf.arguments import did_you_mean


@keras.saving.register_keras_serializable(package="terngrad_tf")
class Constant(keras.optimizers.schedules.LearningRateSchedule):
    """The same rate at every step.

    A schedule and not a float, which Keras would keep as a variable of the checkpoint: the flag
    would then be overridden by the value saved.

    Args:
        learning_rate: float.
    """

    def __init__(self, learning_rate):
        super().__init__()
        self.learning_rate = learning_rate

    def __call__(self, step):
        return keras.ops.convert_to_tensor(self.learning_rate, "float32")

    def get_config(self):
        """Arguments that make an equal schedule."""
        return {"learning_rate": self.learning_rate}


@keras.saving.register_keras_serializable(package="terngrad_tf")
class Linear(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that rises from 0 to `peak` in a line, then falls to 0 in another and stays there.

    `peak * t / w` at step t below w, else `peak * max(0, 1 - (t - w) / (d - w))`.

    Args:
        peak: float.
        warmup_steps: w, number of at least 0.
        decay_steps: d, number above w.
    """

    def __init__(self, peak, warmup_steps, decay_steps):
        super().__init__()
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.decay_steps = decay_steps

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        warmup, span = self.warmup_steps, self.decay_steps - self.warmup_steps
        falling = keras.ops.maximum(1.0 - (step - warmup) / span, 0.0)
        if not warmup:
            return self.peak * falling
        return self.peak * keras.ops.where(step < warmup, step / warmup, falling)

    def get_config(self):
        """Arguments that make an equal schedule."""
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "decay_steps": self.decay_steps,
        }


def available():
    """Names of decay types that `build` knows, sorted."""
    return ["exponential", "fixed", "linear", "polynomial"]


def build(
    decay_type,
    initial_learning_rate,
    *,
    max_steps,
    steps_per_epoch,
    num_epochs_per_decay=20.0,
    decay_factor=0.1,
    warmup_epochs=0.0,
    decay_epochs=None,
    optimizer=None,
):
    """Makes the learning rate of step t, counted from 0.

    - "fixed": `initial_learning_rate`.
    - "exponential": `initial_learning_rate * decay_factor ** floor(t / d)` with
      `d = floor(steps_per_epoch * num_epochs_per_decay)`.
    - "linear": from 0 up to `initial_learning_rate` over `warmup_epochs`, then down to 0 at
      `decay_epochs`, see `Linear`.
    - "polynomial": `initial_learning_rate * sqrt(1 - t / max_steps)`.

    Adam scales its steps itself: with `optimizer="adam"` the rate is fixed, whatever the decay
    type, as in the TernGrad experiments.

    Args:
        decay_type: one of `available()`.
        initial_learning_rate: float, at least 0.
        max_steps: steps of the whole run, a positive integer.
        steps_per_epoch: float, number of training examples divided by the total batch.
        num_epochs_per_decay: float above 0. Default 20.
        decay_factor: float above 0. Default 0.1.
        warmup_epochs: float of at least 0, for "linear". Default 0.
        decay_epochs: float above `warmup_epochs`, for "linear". Default: `max_steps`.
        optimizer: name of the optimizer. Default None.

    Returns:
        A `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
        ValueError: an unknown decay type or a number outside its range.

    Example:
        >>> rate = build("polynomial", 0.01, max_steps=100, steps_per_epoch=10.0)
        >>> round(float(rate(75)), 6)
        0.005
    """
    if decay_type not in available():
        hint = did_you_mean(decay_type, available())
        raise ValueError(
            f"`learning_rate_decay_type` must be one of {', '.join(available())}. "
            f"Received: learning_rate_decay_type={decay_type!r}{hint}"
        )
    if not 0 <= initial_learning_rate < float("inf"):
        raise ValueError(
            "`initial_learning_rate` must be a finite number of at least 0. "
            f"Received: initial_learning_rate={initial_learning_rate!r}"
        )
    if decay_type == "fixed" or optimizer == "adam":
        return Constant(initial_learning_rate)
    if decay_type == "linear":
        decay_steps = max_steps if decay_epochs is None else decay_epochs * steps_per_epoch
        warmup_steps = warmup_epochs * steps_per_epoch
        if not 0 <= warmup_steps < decay_steps < float("inf"):
            raise ValueError(
                "`warmup_epochs` must be at least 0 and end before the decay does, "
                f"{decay_steps / steps_per_epoch:g} epochs. "
                f"Received: warmup_epochs={warmup_epochs!r}"
            )
        return Linear(initial_learning_rate, warmup_steps, decay_steps)
    if decay_type == "polynomial":
        return keras.optimizers.schedules.PolynomialDecay(
            initial_learning_rate, decay_steps=max_steps, end_learning_rate=0.0, power=0.5
        )
    if not 0 < decay_factor < float("inf"):
        raise ValueError(
            "`learning_rate_decay_factor` must be a finite number above 0. "
            f"Received: learning_rate_decay_factor={decay_factor!r}"
        )
    decay_steps = int(steps_per_epoch * num_epochs_per_decay)
    if decay_steps < 1:
        raise ValueError(
            "`num_epochs_per_decay` must span at least one step. "
            f"Received: num_epochs_per_decay={num_epochs_per_decay!r} "
            f"with {steps_per_epoch:g} steps an epoch"
        )
    return keras.optimizers.schedules.ExponentialDecay(
        initial_learning_rate, decay_steps=decay_steps, decay_rate=decay_factor, staircase=True
    )
