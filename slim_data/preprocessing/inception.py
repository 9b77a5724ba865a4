"""The Inception networks' style: random crops, colours and resizing methods; values -1 to 1.

Source: Szegedy et al., *Going Deeper with Convolutions*, CVPR 2015, and TernGrad's pipeline.
"""

from __future__ import annotations

from slim_data.common.lazy import tf
from slim_data.preprocessing import colors, resizing
from slim_data.preprocessing.base import Preprocessing
from slim_data.tfrecord.encoded_image import EncodedImage

MIN_OBJECT_COVERED = 0.1
ASPECT_RATIO = (0.75, 1.33)
AREA = (0.05, 1.0)
MAX_ATTEMPTS = 100
METHODS = ("bilinear", "nearest", "bicubic", "area")
# On a scale from 0 to 255.
BRIGHTNESS = 32.0
SATURATION = (0.5, 1.5)
HUE = 0.2
CONTRAST = (0.5, 1.5)
EVALUATED = 0.875


def augment(encoded: EncodedImage, size: int, seed: tf.Tensor) -> tf.Tensor:
    """Returns a random crop of an image with random colours, resized, randomly mirrored.

    1. `random_crop_box` chooses the crop.
    2. It is mirrored with probability 1/2, and resized by one of four methods.
    3. `augment_colors` changes its colours.
    4. Values become `x / 127.5 - 1`.
    """
    image = encoded.crop(*tf.unstack(random_crop_box(encoded.size(), encoded.boxes, seed)))
    # Independent of the crop, drawn from the same seed by another operation.
    random_values = tf.random.stateless_uniform([7], seed, alg="philox")
    image = tf.cast(resizing.flip_left_right_if(random_values[0] < 0.5, image), tf.float32)
    image = tf.switch_case(
        tf.cast(random_values[1] * len(METHODS), tf.int32),
        [lambda method=method: tf.image.resize(image, [size, size], method) for method in METHODS],
    )
    image.set_shape([size, size, 3])
    return augment_colors(image, random_values[2:]) * (2 / 255) - 1.0


def random_crop_box(size: tf.Tensor, boxes: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns top, left, height and width of a random crop of an image, int32 [4].

    The crop holds at least 10 % of one object's box (of the image, without boxes); its area is 5 to
    100 % of the image's, and width / height is 0.75 to 1.33. After 100 failed attempts, it is the
    whole image.

    Args:
        size: the image's height and width, int32 [2].
        boxes: see `EncodedImage.boxes`.
        seed: int64 [2].
    """
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([size, [3]], axis=0),
        boxes[tf.newaxis],
        seed,
        min_object_covered=MIN_OBJECT_COVERED,
        aspect_ratio_range=ASPECT_RATIO,
        area_range=AREA,
        max_attempts=MAX_ATTEMPTS,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], extent[:2]], axis=0)


def augment_colors(image: tf.Tensor, random_values: tf.Tensor) -> tf.Tensor:
    """Returns an image with changed brightness, saturation, hue and contrast, clipped to [0, 255].

    Brightness changes by up to 32 of 255, saturation by a factor of 0.5 to 1.5, hue by up to 0.2 of
    a turn, contrast by a factor of 0.5 to 1.5. Contrast comes last or second, each with probability
    1/2.

    Args:
        image: float32 [height, width, 3], from 0 to 255.
        random_values: float32 [5], uniform in [0, 1).
    """
    order, brightness, saturation, hue, contrast = tf.unstack(random_values)
    return colors.adjust_colors(
        image,
        order < 0.5,
        _between((-BRIGHTNESS, BRIGHTNESS), brightness),
        _between(SATURATION, saturation),
        _between((-HUE, HUE), hue),
        _between(CONTRAST, contrast),
    )


def evaluate(encoded: EncodedImage, size: int) -> tf.Tensor:
    """Returns the central 87.5 % of height and width, resized bilinearly, as `x / 127.5 - 1`."""
    # Decoding 87.5 % of a JPEG saves no time.
    image = encoded.decode()
    whole = tf.shape(image)[:2]
    # As in `tf.image.central_crop`.
    begin = tf.cast(tf.cast(whole, tf.float32) * (1 - EVALUATED) / 2, tf.int32)
    end = whole - begin
    image = image[begin[0] : end[0], begin[1] : end[1]]
    return resizing.resize_bilinear(image, size, size) * (2 / 255) - 1.0


def _between(bounds, random_value):
    lowest, highest = bounds
    return lowest + (highest - lowest) * random_value


PREPROCESSING = Preprocessing(evaluate, augment)
