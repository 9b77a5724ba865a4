"""The tf.Example of a labelled image; only this module names its keys.

| key | type | value |
|---|---|---|
| image/encoded | bytes | the image file |
| image/format | bytes | its format, such as `png` |
| image/height, image/width, image/channels | int64 | its size |
| image/colorspace | bytes | always `RGB`, as other readers of these files expect |
| image/class/label | int64 | the class, counted from the data set's first label |
| image/class/text | bytes | the class's name |
| image/class/synset | bytes | ImageNet only: the class's WordNet id |
| image/filename | bytes | only for images from files: the file's name |
| image/object/bbox/{xmin,xmax,ymin,ymax} | float list | one value per box, 0 to 1; may be empty |
| image/object/bbox/label | int64 list | ImageNet only: the class, once per box |
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from slim_data.common.lazy import tf

ENCODED = "image/encoded"
FORMAT = "image/format"
HEIGHT = "image/height"
WIDTH = "image/width"
CHANNELS = "image/channels"
COLORSPACE = "image/colorspace"
SIZE = (HEIGHT, WIDTH, CHANNELS)
LABEL = "image/class/label"
TEXT = "image/class/text"
SYNSET = "image/class/synset"
FILENAME = "image/filename"
BOX = ("image/object/bbox/xmin", "image/object/bbox/xmax") + (
    "image/object/bbox/ymin",
    "image/object/bbox/ymax",
)
BOX_LABEL = "image/object/bbox/label"


def build_example(
    encoded: bytes,
    image_format: str,
    size: Sequence[int],
    label: int,
    text: str,
    *,
    synset: str | None = None,
    filename: str | None = None,
    boxes: Sequence[Sequence[float]] = (),
) -> bytes:
    """Returns a serialized tf.Example; equal arguments give equal bytes.

    Args:
        encoded: the image file.
        image_format: such as "png".
        size: (height, width, channels) of the image.
        label: number of the class.
        text: the class's name.
        synset: the class's WordNet id, which also adds the classes of boxes; None omits both.
        filename: None omits the key.
        boxes: (xmin, ymin, xmax, ymax) of each box, relative to the image's size.
    """
    height, width, channels = size
    feature = {
        ENCODED: _bytes(encoded),
        FORMAT: _bytes(image_format.encode()),
        HEIGHT: _int64(height),
        WIDTH: _int64(width),
        CHANNELS: _int64(channels),
        COLORSPACE: _bytes(b"RGB"),
        LABEL: _int64(label),
        TEXT: _bytes(text.encode()),
    }
    for key, i in zip(BOX, (0, 2, 1, 3), strict=True):
        feature[key] = _floats([box[i] for box in boxes])
    if synset is not None:
        feature[SYNSET] = _bytes(synset.encode())
        feature[BOX_LABEL] = _int64(*[label] * len(boxes))
    if filename is not None:
        feature[FILENAME] = _bytes(os.fsencode(filename))
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    # Otherwise the order of the keys may differ between processes.
    return example.SerializeToString(deterministic=True)


def build_png_example(image: np.ndarray, label: int, text: str) -> bytes:
    """Returns a serialized tf.Example of uint8 [height, width, channels] as PNG."""
    return build_example(tf.io.encode_png(image).numpy(), "png", image.shape, label, text)


def features() -> dict[str, Any]:
    """Returns the `tf.io.parse_single_example` features of an image and its class.

    Without defaults, a missing key is an error instead of an empty image.
    """
    return {
        ENCODED: tf.io.FixedLenFeature([], tf.string),
        LABEL: tf.io.FixedLenFeature([], tf.int64),
    }


def other_features() -> dict[str, Any]:
    """Returns the `tf.io.parse_single_example` features that `features` omits."""
    return {
        **{key: tf.io.FixedLenFeature([], tf.string) for key in (FORMAT, COLORSPACE, TEXT)},
        **{key: tf.io.FixedLenFeature([], tf.int64) for key in SIZE},
        **{key: tf.io.VarLenFeature(tf.float32) for key in BOX},
    }


def _bytes(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, values)))


def _floats(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))
