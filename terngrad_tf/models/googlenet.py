"""GoogLeNet (Inception-v1) with batch normalization and without auxiliary heads."""

import math

import keras

from terngrad_tf.models import parts

IMAGE_SIZE = 224
CHANNELS = 3
PREPROCESSING = "inception"

_BATCH_NORM_MOMENTUM = 0.9997
_IMAGE_SIZES = (193, 224)  # the 7x7 window of the head leaves one pixel

# Output channels: 1x1; 1x1 and 3x3; 1x1 and 3x3; 1x1 after pooling.
_MODULES = {
    "3b": (64, (96, 128), (16, 32), 32),
    "3c": (128, (128, 192), (32, 96), 64),
    "4b": (192, (96, 208), (16, 48), 64),
    "4c": (160, (112, 224), (24, 64), 64),
    "4d": (128, (128, 256), (24, 64), 64),
    "4e": (112, (144, 288), (32, 64), 64),
    "4f": (256, (160, 320), (32, 128), 128),
    "5b": (256, (160, 320), (32, 128), 128),
    "5c": (384, (192, 384), (48, 128), 128),
}
_POOL_BEFORE = {"4b": 3, "5b": 2}


def build(
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds three convolutions, nine inception modules and a dense layer; see `registry.build`.

    Each convolution is batch-normalized before its ReLU, without bias. Windows of 3x3 replace the
    paper's 5x5. Dropout applies to the 1024 features. Default images give 6,618,649 weights for
    1001 classes and 6,617,624 for 1000, in 116 variables.

    Source:
        Szegedy et al., "Going deeper with convolutions", 2014; normalization and initial values as
        in the TernGrad experiments (Wen et al., NIPS 2017).
    """
    parts.check_image_size("googlenet", image_size, *_IMAGE_SIZES)
    kernels = parts.Kernels(weight_decay, seed)

    def weights(stddev):
        return kernels.next(keras.initializers.TruncatedNormal, stddev=stddev)

    def conv(x, filters, kernel_size, strides=1, *, name):
        return parts.normalized_conv(
            x,
            filters,
            kernel_size,
            strides,
            momentum=_BATCH_NORM_MOMENTUM,
            name=name,
            **weights(0.01),
        )

    def pool(x, size, strides, name):
        return keras.layers.MaxPooling2D(size, strides, padding="same", name=name)(x)

    def module(x, name, widths):
        single, (narrow1, wide1), (narrow2, wide2), projection = widths
        branch0 = conv(x, single, 1, name=f"{name}_branch0")
        branch1 = conv(x, narrow1, 1, name=f"{name}_branch1_1x1")
        branch1 = conv(branch1, wide1, 3, name=f"{name}_branch1_3x3")
        branch2 = conv(x, narrow2, 1, name=f"{name}_branch2_1x1")
        branch2 = conv(branch2, wide2, 3, name=f"{name}_branch2_3x3")
        branch3 = pool(x, 3, 1, f"{name}_branch3_pool")
        branch3 = conv(branch3, projection, 1, name=f"{name}_branch3_1x1")
        return keras.layers.Concatenate(name=name)([branch0, branch1, branch2, branch3])

    images = keras.Input((image_size, image_size, channels), name="images")
    x = conv(images, 64, 7, 2, name="conv1")
    x = pool(x, 3, 2, "pool1")
    x = conv(x, 64, 1, name="conv2_1x1")
    x = conv(x, 192, 3, name="conv2_3x3")
    x = pool(x, 3, 2, "pool2")
    for name, widths in _MODULES.items():
        if name in _POOL_BEFORE:
            x = pool(x, _POOL_BEFORE[name], 2, f"pool_{name}")
        x = module(x, f"mixed_{name}", widths)
    x = keras.layers.AveragePooling2D(7, 1, name="pool_head")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    features = x.shape[-1]
    # Truncation at two deviations divides the variance by 1.3; 2 / features is left.
    head = weights(math.sqrt(1.3 * 2 / features))
    x = keras.layers.Dropout(1 - dropout_keep_prob, seed=kernels.next_seed(), name="dropout")(x)
    logits = keras.layers.Dense(num_classes, name="logits", **head)(x)
    return keras.Model(images, logits, name="googlenet")
