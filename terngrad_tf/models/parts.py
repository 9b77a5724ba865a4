"""What several networks are made of."""

import keras


def kernel(initializer, weight_decay):
    """How a kernel starts and decays, as arguments of a Keras layer.

    Args:
        initializer: `keras.initializers.Initializer`.
        weight_decay: float d; the kernel adds `d / 2 * sum(w**2)` to the loss.
    """
    return {
        "kernel_initializer": initializer,
        "kernel_regularizer": keras.regularizers.L2(weight_decay / 2),
    }


def normalized_conv(x, filters, kernel_size, strides=1, *, momentum, name, **weights):
    """Convolution without bias, batch normalization without scale, ReLU.

    Args:
        x: tensor `[batch, height, width, channels]`.
        filters: output channels.
        kernel_size: pixels of a side.
        strides: pixels between outputs. Default 1.
        momentum: share of the moving statistics kept at each step.
        name: name of the convolution; the others' names start with it.
        **weights: further arguments of the convolution, as from `kernel`.

    Returns:
        A tensor `[batch, ceil(height / strides), ceil(width / strides), filters]`.
    """
    x = keras.layers.Conv2D(
        filters, kernel_size, strides, padding="same", use_bias=False, name=name, **weights
    )(x)
    x = keras.layers.BatchNormalization(
        momentum=momentum, epsilon=0.001, scale=False, name=f"{name}_bn"
    )(x)
    return keras.layers.ReLU(name=f"{name}_relu")(x)


def check_image_size(net, image_size, smallest, largest=None):
    """Refuses images that a network's windows do not fit on.

    Raises:
        ValueError: `image_size` is not from `smallest` to `largest` (None: without end).
    """
    if image_size < smallest or (largest is not None and image_size > largest):
        rule = f"at least {smallest}" if largest is None else f"from {smallest} to {largest}"
        raise ValueError(
            f"`image_size` must be {rule} for {net}. Received: image_size={image_size}"
        )
