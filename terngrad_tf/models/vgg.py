"""Common form of the VGG networks, with batch normalization."""

from collections.abc import Sequence

import keras

from terngrad_tf.models import parts

IMAGE_SIZE = 224
CHANNELS = 3
PREPROCESSING = "vgg"

_BATCH_NORM_MOMENTUM = 0.999
_HIDDEN_UNITS = 4096


def build(
    name: str,
    stages: Sequence[Sequence[int]],
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds stages of 3x3 convolutions, each pooled to half the size, then three dense layers.

    See `registry.build`. Each convolution is batch-normalized before its ReLU, without bias.
    Dropout follows fc6 and fc7.

    Args:
        stages: output channels of the convolutions of each stage.

    Source:
        Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
        recognition", 2014; normalization and initial values as in the TernGrad experiments (Wen et
        al., NIPS 2017).
    """
    parts.check_image_size(name, image_size, 2 ** len(stages))
    kernels = parts.Kernels(weight_decay, seed)

    def weights():
        return kernels.next(keras.initializers.GlorotUniform)

    images = keras.Input((image_size, image_size, channels), name="images")
    x = images
    for stage, widths in enumerate(stages, 1):
        for position, filters in enumerate(widths, 1):
            x = parts.normalized_conv(
                x,
                filters,
                3,
                momentum=_BATCH_NORM_MOMENTUM,
                name=f"conv{stage}_{position}",
                **weights(),
            )
        x = keras.layers.MaxPooling2D(2, name=f"pool{stage}")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    num_layers = sum(map(len, stages)) + 3
    for position, dense in enumerate(("fc6", "fc7"), 1):
        x = keras.layers.Dense(_HIDDEN_UNITS, activation="relu", name=dense, **weights())(x)
        x = keras.layers.Dropout(
            1 - dropout_keep_prob, seed=seed + num_layers + position, name=f"{dense}_dropout"
        )(x)
    logits = keras.layers.Dense(num_classes, name="logits", **weights())(x)
    return keras.Model(images, logits, name=name)
