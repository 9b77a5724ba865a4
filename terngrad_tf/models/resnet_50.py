"""ResNet of 50 layers with the stride on the 3x3 convolutions ("version 1.5")."""

import keras

from terngrad_tf.models import parts

IMAGE_SIZE = 224
CHANNELS = 3
PREPROCESSING = "resnet"

_BATCH_NORM = {"momentum": 0.9, "epsilon": 1e-4, "scale": True}
# Blocks and output channels of each stage.
_STAGES = ((3, 256), (4, 512), (6, 1024), (3, 2048))


def build(
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds a convolution, sixteen three-convolution blocks and a dense layer.

    See `registry.build`; there is no dropout. A block adds its input, through a 1x1 convolution if
    the size changes, to the output of its 1x1, 3x3 and 1x1 convolutions before the last ReLU. Each
    convolution is batch-normalized, without bias. The model has 25,559,081 weights for 1001 classes
    and 25,557,032 for 1000, in 161 variables.

    Args:
        weight_decay: 1e-4 in the subspace experiments.

    Source:
        He et al., "Deep residual learning for image recognition", CVPR 2016; strides, normalization
        and initial values as in MindSpore's tutorial of dimension-reduction training.
    """
    del dropout_keep_prob
    kernels = parts.Kernels(weight_decay, seed)

    def conv(x, filters, kernel_size, strides=1, *, name, relu=True):
        return parts.normalized_conv(
            x,
            filters,
            kernel_size,
            strides,
            relu=relu,
            name=name,
            **_BATCH_NORM,
            **kernels.next(keras.initializers.GlorotUniform),
        )

    def block(x, filters, strides, name):
        shortcut = x
        if x.shape[-1] != filters:
            shortcut = conv(x, filters, 1, strides, name=f"{name}_shortcut", relu=False)
        x = conv(x, filters // 4, 1, name=f"{name}_conv1")
        x = conv(x, filters // 4, 3, strides, name=f"{name}_conv2")
        x = conv(x, filters, 1, name=f"{name}_conv3", relu=False)
        x = keras.layers.Add(name=f"{name}_add")([x, shortcut])
        return keras.layers.ReLU(name=name)(x)

    images = keras.Input((image_size, image_size, channels), name="images")
    x = conv(images, 64, 7, 2, name="conv1")
    x = keras.layers.MaxPooling2D(3, 2, padding="same", name="pool1")(x)
    for stage, (num_blocks, filters) in enumerate(_STAGES, 1):
        for position in range(1, num_blocks + 1):
            strides = 2 if stage > 1 and position == 1 else 1
            x = block(x, filters, strides, f"block{stage}_{position}")
    x = keras.layers.GlobalAveragePooling2D(name="pool_head")(x)
    head = kernels.next(keras.initializers.TruncatedNormal, stddev=0.01)
    logits = keras.layers.Dense(num_classes, name="logits", **head)(x)
    return keras.Model(images, logits, name="resnet_50")
