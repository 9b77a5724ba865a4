"""Inception-v3 with its auxiliary head."""

import keras

from terngrad_tf.models import parts

IMAGE_SIZE = 299
CHANNELS = 3
PREPROCESSING = "inception"
AUXILIARY_LOSS_WEIGHT = 0.4
LABEL_SMOOTHING = 0.1

_BATCH_NORM_MOMENTUM = 0.9997
_SMALLEST_IMAGE = 107  # for the first window of the auxiliary head


def build(
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds five convolutions, eleven inception modules, a dense layer and an auxiliary head.

    See `registry.build`. The auxiliary head follows the eighth module; outputs are "logits" and
    "aux_logits". Each convolution is batch-normalized before its ReLU, without bias. Dropout
    applies to the 2048 features. Default images give 27,145,970 weights in 196 variables for 1001
    classes, 3,326,569 of them in the auxiliary head.

    Source:
        Szegedy et al., "Rethinking the Inception architecture for computer vision", 2015; initial
        values as in the TernGrad experiments (Wen et al., NIPS 2017).
    """
    parts.check_image_size("inception_v3", image_size, _SMALLEST_IMAGE)
    kernels = parts.Kernels(weight_decay, seed)

    def weights(stddev):
        return kernels.next(keras.initializers.TruncatedNormal, stddev=stddev)

    def conv(x, filters, kernel_size, strides=1, padding="same", *, name, stddev=0.1):
        return parts.normalized_conv(
            x,
            filters,
            kernel_size,
            strides,
            padding=padding,
            momentum=_BATCH_NORM_MOMENTUM,
            name=name,
            **weights(stddev),
        )

    def chain(x, name, *convs):
        for position, (filters, kernel_size) in enumerate(convs, 1):
            x = conv(x, filters, kernel_size, name=f"{name}_{position}")
        return x

    def halve(x, filters, name):
        return conv(x, filters, 3, 2, "valid", name=name)

    def pool(x, name):
        return keras.layers.MaxPooling2D(3, 2, name=name)(x)

    def pool_and_project(x, filters, name):
        x = keras.layers.AveragePooling2D(3, 1, padding="same", name=f"{name}_pool")(x)
        return conv(x, filters, 1, name=f"{name}_1")

    def join(name, *branches):
        return keras.layers.Concatenate(name=name)(branches)

    def mixed_5(x, name, projection):
        return join(
            name,
            chain(x, f"{name}_branch0", (64, 1)),
            chain(x, f"{name}_branch1", (48, 1), (64, 5)),
            chain(x, f"{name}_branch2", (64, 1), (96, 3), (96, 3)),
            pool_and_project(x, projection, f"{name}_branch3"),
        )

    def mixed_6a(x, name):
        return join(
            name,
            halve(x, 384, f"{name}_branch0_1"),
            halve(chain(x, f"{name}_branch1", (64, 1), (96, 3)), 96, f"{name}_branch1_3"),
            pool(x, f"{name}_branch2_pool"),
        )

    def mixed_6(x, name, width):
        row, column = (1, 7), (7, 1)
        return join(
            name,
            chain(x, f"{name}_branch0", (192, 1)),
            chain(x, f"{name}_branch1", (width, 1), (width, row), (192, column)),
            chain(
                x,
                f"{name}_branch2",
                (width, 1),
                (width, column),
                (width, row),
                (width, column),
                (192, row),
            ),
            pool_and_project(x, 192, f"{name}_branch3"),
        )

    def mixed_7a(x, name):
        row, column = (1, 7), (7, 1)
        return join(
            name,
            halve(chain(x, f"{name}_branch0", (192, 1)), 320, f"{name}_branch0_2"),
            halve(
                chain(x, f"{name}_branch1", (192, 1), (192, row), (192, column)),
                192,
                f"{name}_branch1_4",
            ),
            pool(x, f"{name}_branch2_pool"),
        )

    def fork(x, name):
        return (
            conv(x, 384, (1, 3), name=f"{name}_row"),
            conv(x, 384, (3, 1), name=f"{name}_column"),
        )

    def mixed_7(x, name):
        return join(
            name,
            chain(x, f"{name}_branch0", (320, 1)),
            *fork(chain(x, f"{name}_branch1", (384, 1)), f"{name}_branch1"),
            *fork(chain(x, f"{name}_branch2", (448, 1), (384, 3)), f"{name}_branch2"),
            pool_and_project(x, 192, f"{name}_branch3"),
        )

    def auxiliary_head(x):
        x = keras.layers.AveragePooling2D(5, 3, name="aux_pool")(x)
        x = conv(x, 128, 1, name="aux_conv1")
        x = conv(x, 768, x.shape[1:3], padding="valid", name="aux_conv2", stddev=0.01)
        x = keras.layers.Flatten(name="aux_flatten")(x)
        return keras.layers.Dense(num_classes, name="aux_logits", **weights(0.001))(x)

    images = keras.Input((image_size, image_size, channels), name="images")
    x = conv(images, 32, 3, 2, "valid", name="conv1")
    x = conv(x, 32, 3, padding="valid", name="conv2")
    x = conv(x, 64, 3, name="conv3")
    x = pool(x, "pool3")
    x = conv(x, 80, 1, name="conv4")
    x = conv(x, 192, 3, padding="valid", name="conv5")
    x = pool(x, "pool5")
    for name, projection in (("5b", 32), ("5c", 64), ("5d", 64)):
        x = mixed_5(x, f"mixed_{name}", projection)
    x = mixed_6a(x, "mixed_6a")
    for name, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        x = mixed_6(x, f"mixed_{name}", width)
    aux_logits = auxiliary_head(x)
    x = mixed_7a(x, "mixed_7a")
    for name in ("7b", "7c"):
        x = mixed_7(x, f"mixed_{name}")
    x = keras.layers.GlobalAveragePooling2D(name="pool_head")(x)
    head = weights(0.01)
    x = keras.layers.Dropout(1 - dropout_keep_prob, seed=kernels.next_seed(), name="dropout")(x)
    logits = keras.layers.Dense(num_classes, name="logits", **head)(x)
    return keras.Model(images, [logits, aux_logits], name="inception_v3")
