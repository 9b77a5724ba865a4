"""Common form of the residual networks for CIFAR-10."""

import keras

from terngrad_tf.models import parts

IMAGE_SIZE = 32
CHANNELS = 3
PREPROCESSING = "resnet"

_BATCH_NORM = {"momentum": 0.9, "epsilon": 1e-5, "scale": True}
_STAGES = (16, 32, 64)


def build(
    name: str,
    num_blocks: int,
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds a convolution, three stages of two-convolution blocks, and a dense layer.

    See `registry.build`; there is no dropout. A block adds its input to the output of its 3x3
    convolutions before the last ReLU. Shortcuts have no weights: if the size changes, they take
    every other pixel and pad missing channels with zeros. Each convolution is batch-normalized,
    without bias.

    Args:
        num_blocks: number of blocks per stage.
        weight_decay: 1e-4 in the paper.

    Source:
        He et al., "Deep residual learning for image recognition", CVPR 2016, section 4.2 (identity
        shortcuts, "option A").
    """
    del dropout_keep_prob
    kernels = parts.Kernels(weight_decay, seed)

    def weights():
        return kernels.next(keras.initializers.HeNormal)

    def conv(x, filters, strides=1, *, name, relu=True):
        return parts.normalized_conv(
            x, filters, 3, strides, relu=relu, name=name, **_BATCH_NORM, **weights()
        )

    def block(x, filters, strides, name):
        shortcut = x
        if strides != 1:
            shortcut = keras.layers.AveragePooling2D(1, strides, name=f"{name}_every_other")(x)
        if x.shape[-1] != filters:
            missing = filters - x.shape[-1]
            shortcut = keras.ops.pad(shortcut, ((0, 0), (0, 0), (0, 0), (0, missing)))
        x = conv(x, filters, strides, name=f"{name}_conv1")
        x = conv(x, filters, name=f"{name}_conv2", relu=False)
        x = keras.layers.Add(name=f"{name}_add")([x, shortcut])
        return keras.layers.ReLU(name=name)(x)

    images = keras.Input((image_size, image_size, channels), name="images")
    x = conv(images, _STAGES[0], name="conv1")
    for stage, filters in enumerate(_STAGES, 1):
        for position in range(1, num_blocks + 1):
            strides = 2 if stage > 1 and position == 1 else 1
            x = block(x, filters, strides, f"block{stage}_{position}")
    x = keras.layers.GlobalAveragePooling2D(name="pool_head")(x)
    logits = keras.layers.Dense(num_classes, name="logits", **weights())(x)
    return keras.Model(images, logits, name=name)
