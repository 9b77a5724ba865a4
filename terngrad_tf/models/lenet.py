"""LeNet for 28x28 grey images, with SAME padding and ReLU throughout."""

import keras

from terngrad_tf.models import parts

IMAGE_SIZE = 28
CHANNELS = 1
PREPROCESSING = "inception"


def build(
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds two convolutions, each with max pooling, and two dense layers; see `registry.build`.

    There is no dropout. 10 classes and default images give 1,256,080 weights in 8 variables.

    Source:
        LeCun et al., "Gradient-based learning applied to document recognition", 1998; sizes and
        initial values as in the TernGrad experiments (Wen et al., NIPS 2017).
    """
    del dropout_keep_prob

    def weights(stddev, layer):
        initializer = keras.initializers.TruncatedNormal(stddev=stddev, seed=seed + layer)
        return parts.kernel(initializer, weight_decay)

    images = keras.Input((image_size, image_size, channels), name="images")
    x = keras.layers.Conv2D(
        20, 5, padding="same", activation="relu", name="conv1", **weights(0.05, 1)
    )(images)
    x = keras.layers.MaxPooling2D(2, padding="same", name="pool1")(x)
    x = keras.layers.Conv2D(
        50, 5, padding="same", activation="relu", name="conv2", **weights(0.05, 2)
    )(x)
    x = keras.layers.MaxPooling2D(2, padding="same", name="pool2")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    x = keras.layers.Dense(500, activation="relu", name="fc3", **weights(0.048, 3))(x)
    logits = keras.layers.Dense(num_classes, name="logits", **weights(0.0767, 5))(x)
    return keras.Model(images, logits, name="lenet")
