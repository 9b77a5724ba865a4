"""Parts that several networks share."""

from collections.abc import Callable
from typing import Any

import keras


def kernel(initializer: keras.initializers.Initializer, weight_decay: float) -> dict[str, Any]:
    """Returns a layer's arguments for initial values and decay: d adds `d / 2 * sum(w**2)` to the
    loss.
    """
    return {
        "kernel_initializer": initializer,
        "kernel_regularizer": keras.regularizers.L2(weight_decay / 2),
    }


class Kernels:
    """Initial values and decay of a network's kernels: layer k draws with `seed + k`.

    Args:
        weight_decay: see `kernel`.
    """

    def __init__(self, weight_decay: float, seed: int):
        self._weight_decay = weight_decay
        self._seed = seed

    def next_seed(self) -> int:
        """Returns the seed of the next layer."""
        self._seed += 1
        return self._seed

    def next(
        self, initializer: Callable[..., keras.initializers.Initializer], **options: Any
    ) -> dict[str, Any]:
        """Returns the next layer's arguments, given a class of initializers and its options."""
        return kernel(initializer(**options, seed=self.next_seed()), self._weight_decay)


def normalized_conv(
    x: Any,
    filters: int,
    kernel_size: int | tuple[int, int],
    strides: int = 1,
    *,
    padding: str = "same",
    momentum: float,
    epsilon: float = 0.001,
    scale: bool = False,
    relu: bool = True,
    name: str,
    **weights: Any,
) -> keras.KerasTensor:
    """Applies a convolution without bias, batch normalization and ReLU.

    Args:
        momentum: share of the moving statistics kept at each step.
        scale: whether each channel has a factor besides its shift.
        name: name of the convolution and prefix of the other layers' names.
        **weights: further arguments of the convolution, as from `kernel`.
    """
    x = keras.layers.Conv2D(
        filters, kernel_size, strides, padding=padding, use_bias=False, name=name, **weights
    )(x)
    x = keras.layers.BatchNormalization(
        momentum=momentum, epsilon=epsilon, scale=scale, name=f"{name}_bn"
    )(x)
    return keras.layers.ReLU(name=f"{name}_relu")(x) if relu else x


def check_image_size(net: str, image_size: int, smallest: int, largest: int | None = None) -> None:
    """Raises ValueError unless `image_size` is from `smallest` to `largest` (None: unlimited)."""
    if image_size < smallest or (largest is not None and image_size > largest):
        rule = f"at least {smallest}" if largest is None else f"from {smallest} to {largest}"
        raise ValueError(
            f"`image_size` must be {rule} for {net}. Received: image_size={image_size}"
        )
