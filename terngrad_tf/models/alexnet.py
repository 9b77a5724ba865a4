"""AlexNet with two groups, batch normalization and local response normalization."""

import keras

from terngrad_tf.models import parts
from terngrad_tf.models.lrn import LocalResponseNormalization

IMAGE_SIZE = 224
CHANNELS = 3
PREPROCESSING = "alexnet"

_BATCH_NORM_MOMENTUM = 0.9997
_SMALLEST_IMAGE = 57  # for the last pooling window


def build(
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds five convolutions in two groups, then three dense layers; see `registry.build`.

    The groups are joined after the second and the last convolution. Each convolution is
    batch-normalized before its ReLU, without bias. Dropout follows fc6 and fc7. Default images and
    1001 classes give 60,969,321 weights in 26 variables.

    Source:
        Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", NIPS
        2012; sizes and initial values as in the TernGrad experiments (Wen et al., NIPS 2017).
    """
    parts.check_image_size("alexnet", image_size, _SMALLEST_IMAGE)

    def weights(stddev, layer):
        initializer = keras.initializers.TruncatedNormal(stddev=stddev, seed=seed + layer)
        return parts.kernel(initializer, weight_decay)

    def conv(x, filters, kernel_size, strides, name, layer):
        return parts.normalized_conv(
            x,
            filters,
            kernel_size,
            strides,
            momentum=_BATCH_NORM_MOMENTUM,
            name=name,
            **weights(0.01, layer),
        )

    def lrn(x, name):
        return LocalResponseNormalization(radius=2, bias=2.0, alpha=1e-4, beta=0.75, name=name)(x)

    def pool(x, name):
        return keras.layers.MaxPooling2D(3, 2, name=name)(x)

    def dense(x, units, stddev, layer, name):
        x = keras.layers.Dense(
            units,
            activation="relu",
            # Keras annotates str, the default's type.
            bias_initializer=keras.initializers.Constant(0.1),  # pyright: ignore[reportArgumentType]
            name=name,
            **weights(stddev, layer),
        )(x)
        return keras.layers.Dropout(
            1 - dropout_keep_prob, seed=seed + layer + 3, name=f"{name}_dropout"
        )(x)

    images = keras.Input((image_size, image_size, channels), name="images")
    groups = []
    for group in (1, 2):
        x = conv(images, 48, 11, 4, f"conv1_{group}", group)
        x = pool(lrn(x, f"lrn1_{group}"), f"pool1_{group}")
        x = conv(x, 128, 5, 1, f"conv2_{group}", 2 + group)
        groups.append(pool(lrn(x, f"lrn2_{group}"), f"pool2_{group}"))
    both = keras.layers.Concatenate(name="concat2")(groups)
    groups = []
    for group in (1, 2):
        x = conv(both, 192, 3, 1, f"conv3_{group}", 4 + group)
        x = conv(x, 192, 3, 1, f"conv4_{group}", 6 + group)
        x = conv(x, 128, 3, 1, f"conv5_{group}", 8 + group)
        groups.append(pool(x, f"pool5_{group}"))
    x = keras.layers.Concatenate(name="concat5")(groups)
    x = keras.layers.Flatten(name="flatten")(x)
    x = dense(x, 4096, 0.005, 11, "fc6")
    x = dense(x, 4096, 0.005, 12, "fc7")
    logits = keras.layers.Dense(num_classes, name="logits", **weights(0.01, 13))(x)
    return keras.Model(images, logits, name="alexnet")
