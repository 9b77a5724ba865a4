"""A small AlexNet for CIFAR-10, with local response normalization."""

import keras

from terngrad_tf.models.lrn import LocalResponseNormalization

IMAGE_SIZE = 24
CHANNELS = 3
PREPROCESSING = "inception"


def build(
    num_classes: int,
    image_size: int,
    channels: int,
    weight_decay: float,
    dropout_keep_prob: float,
    seed: int,
) -> keras.Model:
    """Builds two convolutions and three dense layers; see `registry.build`.

    Only fc3 and fc4 have weight decay; there is no dropout. 10 classes give 1,068,298 weights for
    24x24x3 images and 1,756,426 for 32x32x3, in 10 variables.

    Source:
        Krizhevsky, cuda-convnet, 2011; sizes and initial values as in the TernGrad experiments
        (Wen et al., NIPS 2017).
    """
    del dropout_keep_prob

    def start(stddev, bias, layer):
        return {
            "kernel_initializer": keras.initializers.TruncatedNormal(
                stddev=stddev, seed=seed + layer
            ),
            "bias_initializer": keras.initializers.Constant(bias),
        }

    def lrn(name):
        return LocalResponseNormalization(radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75, name=name)

    decay = keras.regularizers.L2(weight_decay / 2)
    images = keras.Input((image_size, image_size, channels), name="images")
    x = keras.layers.Conv2D(
        64, 5, padding="same", activation="relu", name="conv1", **start(0.05, 0.0, 1)
    )(images)
    x = keras.layers.MaxPooling2D(3, 2, padding="same", name="pool1")(x)
    x = lrn("lrn1")(x)
    x = keras.layers.Conv2D(
        64, 5, padding="same", activation="relu", name="conv2", **start(0.05, 0.1, 2)
    )(x)
    x = lrn("lrn2")(x)
    x = keras.layers.MaxPooling2D(3, 2, padding="same", name="pool2")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    x = keras.layers.Dense(
        384, activation="relu", kernel_regularizer=decay, name="fc3", **start(0.04, 0.1, 3)
    )(x)
    x = keras.layers.Dense(
        192, activation="relu", kernel_regularizer=decay, name="fc4", **start(0.04, 0.1, 4)
    )(x)
    logits = keras.layers.Dense(num_classes, name="logits", **start(1 / 192, 0.0, 5))(x)
    return keras.Model(images, logits, name="cifar10_alexnet")
