"""Images of any size, and records that hold them."""

import numpy as np
import tensorflow as tf


def pixels(height=60, width=80, seed=0):
    """Returns smooth random pixels, uint8 [height, width, 3]."""
    generator = np.random.default_rng(seed)
    coarse = generator.uniform(0, 255, (4, 5, 3)).astype(np.float32)
    smooth = tf.image.resize(coarse, (height, width), "bicubic").numpy()
    noisy = smooth + generator.normal(0, 8, smooth.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def ramp(height, width):
    """Returns an image whose red and green values are a pixel's row and column, both < 256."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, np.zeros_like(rows)], axis=-1).astype(np.uint8)


def jpeg(image, quality=95):
    """Returns the bytes of a JPEG file, which is grey if the image has one channel."""
    return tf.io.encode_jpeg(image, quality=quality).numpy()


def decode(encoded, channels=3):
    """Returns the pixels of a JPEG file, uint8 [height, width, channels]."""
    return tf.io.decode_jpeg(encoded, channels, dct_method="INTEGER_ACCURATE").numpy()


def example(encoded, label=1, *, image_format="JPEG", size=None, boxes=()):
    """Returns a serialized tf.Example.

    Args:
        encoded: bytes of the image.
        label: int.
        image_format: str.
        size: (height, width), or None to leave them out.
        boxes: list of (ymin, xmin, ymax, xmax).
    """
    feature = {
        "image/encoded": tf.train.Feature(bytes_list={"value": [encoded]}),
        "image/format": tf.train.Feature(bytes_list={"value": [image_format.encode()]}),
        "image/class/label": tf.train.Feature(int64_list={"value": [label]}),
    }
    for key, value in zip(("image/height", "image/width"), size or (), strict=False):
        feature[key] = tf.train.Feature(int64_list={"value": [value]})
    for key, column in zip(
        ("ymin", "xmin", "ymax", "xmax"), zip(*boxes, strict=True), strict=False
    ):
        feature[f"image/object/bbox/{key}"] = tf.train.Feature(float_list={"value": column})
    return tf.train.Example(features={"feature": feature}).SerializeToString()


def raw_example(image, label=1, **more):
    """Returns a serialized tf.Example that holds raw pixels."""
    size = image.shape[:2]
    return example(image.tobytes(), label, image_format="RAW", size=size, **more)


def resized(image, height, width):
    """Resizes an image bilinearly, treating pixels as areas: slow and plain, in float64."""
    image = image.astype(np.float64)
    for axis, size in enumerate((height, width)):
        old = image.shape[axis]
        places = (np.arange(size) + 0.5) * old / size - 0.5
        low = np.floor(places).astype(int)
        shape = [-1 if i == axis else 1 for i in range(3)]
        share = (places - low).reshape(shape)
        below = image.take(np.clip(low, 0, old - 1), axis)
        above = image.take(np.clip(low + 1, 0, old - 1), axis)
        image = below * (1 - share) + above * share
    return image
