"""Local response normalization."""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="terngrad_tf")
class LocalResponseNormalization(keras.layers.Layer):
    """Divides each channel by the strength of its neighbouring channels at the same pixel.

        y[c] = x[c] / (bias + alpha * sum(x[c - radius : c + radius + 1]**2)) ** beta

    The sum is not divided by its number of terms.

    Example:
        >>> layer = LocalResponseNormalization(radius=1, bias=1.0, alpha=1.0, beta=0.5)
        >>> float(layer(tf.ones((1, 1, 1, 3)))[0, 0, 0, 1])
        0.5

    Source:
        Krizhevsky et al., "ImageNet classification with deep convolutional neural networks",
        NIPS 2012, section 3.3.
    """

    def __init__(self, radius: int, bias: float, alpha: float, beta: float, **kwargs: Any):
        super().__init__(**kwargs)
        self.radius = radius
        self.bias = bias
        self.alpha = alpha
        self.beta = beta

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        # In float16, squares overflow above 255, and the small sums would be lost beside `bias`.
        outputs = tf.nn.local_response_normalization(
            tf.cast(inputs, tf.float32),
            depth_radius=self.radius,
            bias=self.bias,
            alpha=self.alpha,
            beta=self.beta,
        )
        return tf.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "radius": self.radius,
            "bias": self.bias,
            "alpha": self.alpha,
            "beta": self.beta,
        }
