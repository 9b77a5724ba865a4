"""Network, loss and optimizer of a run."""

import typing

from terngrad_tf import models
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import Config, configuration, option


@configuration
class ModelConfig(Config):
    """The network and its loss."""

    net: str | None = option(
        "lenet",
        f"Network: {', '.join(models.available())}. Default with --fine_tune: the network "
        "of the weights to start from.",
    )
    image_size: int | None = option(
        None,
        "Pixels of a side. Default: the network's usual size, or the size of the weights to start "
        "from if --fine_tune selects the network.",
        checks.PIXELS,
    )
    weight_decay: float = option(
        0.0005, "L2 factor d: d / 2 * sum(w^2) joins the loss.", checks.FACTOR
    )
    dropout_keep_prob: float = option(
        0.5,
        "Probability of keeping a unit in the network's dropout layers.",
        checks.Range(0, 1, above=True),
    )
    label_smoothing: float | None = option(
        None,
        "Share of each target that is spread evenly over all classes. Default: 0.1 for "
        "inception_v3 and 0 for other networks.",
        checks.Range(0, 1, below=True),
    )
    mixed_precision: bool = option(
        False,
        "Compute in float16 and scale the loss; weights stay float32. For GPUs.",
        before=False,
    )

    def resolved(self) -> "ModelConfig":
        """Returns the configuration with the network's defaults for missing values.

        Raises:
            ValueError: the network is unknown.
        """
        net: typing.Any = self.net  # no network is refused as an unknown one is
        usual_size, _ = models.input_shape(net)
        smoothing = self.label_smoothing
        return self.changed(
            image_size=self.image_size or usual_size,
            label_smoothing=models.label_smoothing(net) if smoothing is None else smoothing,
        )


def is_linear(decay_type: str, optimizer: str) -> bool:
    """Returns True if the learning rate rises and falls in a line; that of Adam is constant."""
    return decay_type == "linear" and optimizer != "adam"


@configuration
class OptimizerConfig(Config):
    """The optimizer and its learning rate."""

    name: str = option(
        "momentum",
        "momentum, adam, abs_adam (Adam that rounded gradients do not slow down), gd or rmsprop.",
        name="optimizer",
    )
    momentum: float = option(0.9, "For --optimizer momentum and rmsprop.", checks.Range(0, 1))
    initial_learning_rate: float = option(
        0.01, "Learning rate at step 0 or, with --warmup_epochs, at their end.", checks.FACTOR
    )
    learning_rate_decay_type: str = option(
        "exponential",
        "fixed, exponential (in stairs), linear (after --warmup_epochs, to 0 at --decay_epochs) "
        "or polynomial (square root, to 0 at --max_steps). --optimizer adam has a "
        "fixed rate.",
    )
    learning_rate_decay_factor: float = option(
        0.1, "Factor of each exponential decay.", checks.FACTOR
    )
    num_epochs_per_decay: float = option(20.0, "Epochs between exponential decays.", checks.EPOCHS)
    warmup_epochs: float = option(
        0.0,
        "Epochs over which --learning_rate_decay_type linear rises from 0 to the full rate.",
        checks.EPOCHS,
    )
    decay_epochs: float | None = option(
        None,
        "Epoch at which --learning_rate_decay_type linear reaches 0. Default: the run's last.",
        checks.Range(0, 10**6, above=True),
    )
    loss_scale: float | None = option(
        None,
        "Constant factor of the loss, such as 1024, by which gradients are divided again; an "
        "overflow then ends the run. 0 or None: with --mixed_precision an adaptive factor that "
        "skips steps that overflow, otherwise none.",
        checks.Range(0, 2**31),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_scale == 0:
            object.__setattr__(self, "loss_scale", None)
        if not is_linear(self.learning_rate_decay_type, self.name):
            why = "without learning_rate_decay_type=linear, or with optimizer=adam"
            self.refuse_given(("warmup_epochs", "decay_epochs"), why)

    @property
    def decays_to_the_end(self) -> bool:
        """True if the learning rate depends on the run's length."""
        line_to_the_end = self.learning_rate_decay_type == "linear" and self.decay_epochs is None
        return self.name != "adam" and (
            self.learning_rate_decay_type == "polynomial" or line_to_the_end
        )
