"""Networks by name."""

import importlib
import typing

from terngrad_tf.common.arguments import check, check_integer, did_you_mean

if typing.TYPE_CHECKING:
    import keras

# Modules with IMAGE_SIZE, CHANNELS (the usual input), PREPROCESSING and build(...), some with
# AUXILIARY_LOSS_WEIGHT and LABEL_SMOOTHING. In `build`, layer k draws its weights with seed + k,
# and dropout uses the following seeds. Imported on request: help lists the names without Keras.
_NETWORKS = (
    "alexnet",
    "alexnet_v2",
    "cifar10_alexnet",
    "googlenet",
    "inception_v3",
    "lenet",
    "resnet_20",
    "resnet_32",
    "resnet_50",
    "vgg_16",
    "vgg_a",
)


def available() -> list[str]:
    """Returns the names for `build`, sorted."""
    return sorted(_NETWORKS)


def input_shape(name: str) -> tuple[int, int]:
    """Returns the usual input of a network as (image_size, channels).

    Raises:
        ValueError: the name is unknown.
    """
    network = _find(name)
    return network.IMAGE_SIZE, network.CHANNELS


def output_loss_weights(name: str) -> dict[str, float]:
    """Returns each output's loss weight by name, in the order of the outputs, the prediction first.

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> output_loss_weights("lenet")
        {'logits': 1.0}
    """
    network = _find(name)
    weights = {"logits": 1.0}
    if hasattr(network, "AUXILIARY_LOSS_WEIGHT"):
        weights["aux_logits"] = network.AUXILIARY_LOSS_WEIGHT
    return weights


def label_smoothing(name: str) -> float:
    """Returns the share of each target that the TernGrad experiments spread over all classes.

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> label_smoothing("lenet")
        0.0
    """
    return getattr(_find(name), "LABEL_SMOOTHING", 0.0)


def preprocessing(name: str) -> str:
    """Returns the preprocessing that turns photographs into a network's input.

    Returns:
        "alexnet", "inception", "resnet" or "vgg".

    Raises:
        ValueError: the name is unknown.

    Example:
        >>> preprocessing("vgg_16")
        'vgg'
    """
    return _find(name).PREPROCESSING


def build(
    name: str,
    num_classes: int,
    image_size: int | None = None,
    channels: int | None = None,
    *,
    weight_decay: float = 0.0005,
    dropout_keep_prob: float = 0.5,
    seed: int = 1,
) -> "keras.Model":
    """Builds a network that ends in a linear layer named "logits", the prediction.

    Equal arguments give equal weights, so workers start alike.

    Args:
        name: one of `available()`.
        num_classes: number of outputs, at least 1.
        image_size: height and width of the input in pixels. Default: the network's usual size.
        channels: channels of the input. Default: the network's usual number.
        weight_decay: L2 factor d; each kernel, never a bias, adds `d / 2 * sum(w**2)` to the loss.
            Default 0.0005.
        dropout_keep_prob: probability, in (0, 1], that dropout keeps a unit. Default 0.5.
        seed: integer from which each layer's seed is derived. Default 1.

    Returns:
        A `keras.Model` from float32 `[batch, image_size, image_size, channels]` to float32 `[batch,
        num_classes]`, or to a list of such logits as in `output_loss_weights(name)`.

    Raises:
        ValueError: the name is unknown or a number is out of range.

    Example:
        >>> build("lenet", num_classes=10).count_params()
        1256080
    """
    network = _find(name)
    image_size = network.IMAGE_SIZE if image_size is None else image_size
    channels = network.CHANNELS if channels is None else channels
    for argument, value in (
        ("num_classes", num_classes),
        ("image_size", image_size),
        ("channels", channels),
    ):
        check_integer(argument, value)
    is_finite = 0 <= weight_decay < float("inf")
    check(is_finite, "weight_decay", "must be a finite number of at least 0", weight_decay)
    keeps = 0 < dropout_keep_prob <= 1
    check(keeps, "dropout_keep_prob", "must be in the range (0, 1]", dropout_keep_prob)
    return network.build(
        num_classes=num_classes,
        image_size=image_size,
        channels=channels,
        weight_decay=weight_decay,
        dropout_keep_prob=dropout_keep_prob,
        seed=seed,
    )


def _find(name):
    if name in _NETWORKS:
        return importlib.import_module(f"terngrad_tf.models.{name}")
    hint = did_you_mean(name, available())
    raise ValueError(f"`net` must be one of {', '.join(available())}. Received: net={name!r}{hint}")
