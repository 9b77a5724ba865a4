"""AlexNet with one tower, and dense layers written as convolutions."""

import keras

from terngrad_tf.models import parts

IMAGE_SIZE = 224
CHANNELS = 3
PREPROCESSING = "inception"

_IMAGE_SIZES = (195, 226)  # the 5x5 window of fc6 leaves one pixel


def build(
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds five convolutions and three dense layers without normalization; see `registry.build`.

    Dropout follows fc6 and fc7. Default images give 50,308,009 weights for 1001 classes and
    50,303,912 for 1000, in 16 variables.

    Source:
        Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014; sizes
        and initial values as in the TernGrad experiments (Wen et al., NIPS 2017).
    """
    parts.check_image_size("alexnet_v2", image_size, *_IMAGE_SIZES)

    def glorot(layer):
        return parts.kernel(keras.initializers.GlorotUniform(seed=seed + layer), weight_decay)

    def normal(layer):
        initializer = keras.initializers.TruncatedNormal(stddev=0.005, seed=seed + layer)
        return parts.kernel(initializer, weight_decay)

    def conv(x, filters, kernel_size, strides=1, padding="same", *, name, **weights):
        return keras.layers.Conv2D(
            filters,
            kernel_size,
            strides,
            padding=padding,
            activation="relu",
            # Keras annotates str, the default's type.
            bias_initializer=keras.initializers.Constant(0.1),  # pyright: ignore[reportArgumentType]
            name=name,
            **weights,
        )(x)

    def pool(x, name):
        return keras.layers.MaxPooling2D(3, 2, name=name)(x)

    def dropout(x, layer, name):
        return keras.layers.Dropout(1 - dropout_keep_prob, seed=seed + layer, name=name)(x)

    images = keras.Input((image_size, image_size, channels), name="images")
    x = conv(images, 64, 11, 4, "valid", name="conv1", **glorot(1))
    x = pool(x, "pool1")
    x = conv(x, 192, 5, name="conv2", **glorot(2))
    x = pool(x, "pool2")
    x = conv(x, 384, 3, name="conv3", **glorot(3))
    x = conv(x, 384, 3, name="conv4", **glorot(4))
    x = conv(x, 256, 3, name="conv5", **glorot(5))
    x = pool(x, "pool5")
    x = conv(x, 4096, 5, padding="valid", name="fc6", **normal(6))
    x = dropout(x, 9, "fc6_dropout")
    x = conv(x, 4096, 1, name="fc7", **normal(7))
    x = dropout(x, 10, "fc7_dropout")
    x = keras.layers.Flatten(name="flatten")(x)
    logits = keras.layers.Dense(num_classes, name="logits", **normal(8))(x)
    return keras.Model(images, logits, name="alexnet_v2")
