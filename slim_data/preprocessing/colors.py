"""Changes an image's brightness, saturation, hue and contrast.

Uses the formulas of `tf.image.adjust_saturation`, `adjust_hue` and `adjust_contrast`, as arithmetic
that XLA compiles to half their time.
"""

from __future__ import annotations

import functools

from slim_data.common.lazy import tf


def adjust_colors(
    image: tf.Tensor,
    contrast_last: tf.Tensor,
    brightness: tf.Tensor,
    saturation: tf.Tensor,
    hue: tf.Tensor,
    contrast: tf.Tensor,
) -> tf.Tensor:
    """Returns an image with changed colours, clipped to [0, 255].

    Order: brightness, saturation, hue, contrast; or brightness, contrast, saturation, hue.

    Args:
        image: float32 [height, width, 3], statically known, from 0 to 255.
        brightness: added to all values.
        saturation: factor, 0 or more.
        hue: change of the hue, in turns.
        contrast: factor of the distance from each channel's mean.
    """
    arguments = image, brightness, saturation, hue, contrast
    return tf.cond(
        contrast_last,
        lambda: _compiled(_with_contrast_last)(*arguments),
        lambda: _compiled(_with_contrast_second)(*arguments),
    )


def _with_contrast_last(image, brightness, saturation, hue, contrast):
    image = adjust_saturation_and_hue(image + brightness, saturation, hue)
    return tf.clip_by_value(adjust_contrast(image, contrast), 0.0, 255.0)


def _with_contrast_second(image, brightness, saturation, hue, contrast):
    image = adjust_contrast(image + brightness, contrast)
    return tf.clip_by_value(adjust_saturation_and_hue(image, saturation, hue), 0.0, 255.0)


@functools.cache
def _compiled(function):
    # Not a decorator: importing this module does not load TensorFlow.
    return tf.function(function, autograph=False, jit_compile=True)


def adjust_saturation_and_hue(image: tf.Tensor, saturation: tf.Tensor, hue: tf.Tensor) -> tf.Tensor:
    """Returns an image with scaled saturation and rotated hue.

    In HSV, hue in sixths of a turn: `S' = min(S saturation, 1)`, `H' = H + 6 hue` and, converted
    back, `x = V - V S' clip(min(k, 4 - k), 0, 1)` with `k = (n + H') mod 6` and n = 5, 3 and 1 for
    red, green and blue (https://en.wikipedia.org/wiki/HSL_and_HSV#HSV_to_RGB_alternative). If all
    three are negative, the result is grey.
    """
    red, green, blue = tf.split(image, 3, axis=-1)
    value = tf.maximum(tf.maximum(red, green), blue)
    spread = value - tf.minimum(tf.minimum(red, green), blue)
    sixths = tf.where(
        red >= value,
        green - blue,
        tf.where(green >= value, blue - red + 2 * spread, red - green + 4 * spread),
    )
    # Grey has no hue; avoid 0 / 0.
    sixths /= tf.maximum(spread, 1e-20)
    strength = tf.minimum(spread * saturation, tf.maximum(value, 0.0))
    k = sixths + (tf.constant([5.0, 3.0, 1.0]) + 6 * hue)
    k -= 6 * tf.floor(k / 6)
    return value - strength * tf.clip_by_value(tf.minimum(k, 4 - k), 0.0, 1.0)


def adjust_contrast(image: tf.Tensor, contrast: tf.Tensor) -> tf.Tensor:
    """Returns `mean + contrast (x - mean)`, with a mean per channel, of an image of known shape."""
    height, width, channels = image.shape
    # Reducing whole rows first is many times as fast.
    columns = tf.reduce_mean(tf.reshape(image, [height, width * channels]), axis=0)
    mean = tf.reduce_mean(tf.reshape(columns, [width, channels]), axis=0)
    return mean + contrast * (image - mean)
