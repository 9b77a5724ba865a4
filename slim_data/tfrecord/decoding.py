"""Decodes serialized tf.Examples to images and labels."""

from __future__ import annotations

import functools
import typing

from slim_data.common.lazy import tf
from slim_data.tfrecord import examples
from slim_data.tfrecord.encoded_image import EncodedImage, decode_image, decode_other

# Part of the message of every error that a record causes.
SCOPE = "slim_data_record"


class ImageInfo(typing.Protocol):
    """Properties of a data set that decoding needs; `DatasetInfo` has them."""

    @property
    def image_size(self) -> int | None:
        """Height and width of all images; None if they differ."""
        ...

    @property
    def channels(self) -> int:
        """Channels of the images."""
        ...

    @property
    def label_offset(self) -> int:
        """Number of the first class."""
        ...

    @property
    def num_classes(self) -> int:
        """Number of the last class plus 1."""
        ...


def decode_examples(serialized: tf.Tensor, dataset: ImageInfo) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns images and labels of records whose images all have the data set's size.

    For small images, one call per batch takes half the time of one call per image.

    Args:
        serialized: tf.Examples, string [n].

    Returns:
        (uint8 [n, image_size, image_size, channels], int32 [n]).

    Raises:
        tf.errors.InvalidArgumentError: a key is missing, an image is damaged or of another size, or
            a label is out of range.
    """
    shape = [dataset.image_size, dataset.image_size, dataset.channels]

    def decode_all(decode):
        def of_shape(encoded):
            with tf.name_scope(SCOPE):
                return tf.ensure_shape(decode(encoded, dataset.channels), shape)

        signature = tf.TensorSpec(shape, tf.uint8)
        return tf.map_fn(of_shape, features[examples.ENCODED], fn_output_signature=signature)

    with tf.name_scope(SCOPE):
        features = tf.io.parse_example(serialized, examples.features())
        # The content determines the format, not image/format. Asking each image would take as long
        # as a fifth of its decoding.
        images = tf.cond(
            tf.reduce_any(tf.io.is_jpeg(features[examples.ENCODED])),
            lambda: decode_all(decode_image),
            lambda: decode_all(decode_other),
        )
        return images, _labels(features, dataset)


def parse_encoded_image(
    serialized: tf.Tensor, dataset: ImageInfo
) -> tuple[EncodedImage, tf.Tensor]:
    """Returns the undecoded image and the label, int32, of one record with an image of any size.

    Raises:
        tf.errors.InvalidArgumentError: a key is missing or the label is out of range.
    """
    with tf.name_scope(SCOPE):
        parsed = tf.io.parse_single_example(serialized, _photo_features())
        encoded = EncodedImage(
            parsed[examples.ENCODED],
            parsed[examples.FORMAT],
            parsed[examples.HEIGHT],
            parsed[examples.WIDTH],
            functools.partial(_boxes, serialized),
        )
        return encoded, _labels(parsed, dataset)


def decode_example(serialized: tf.Tensor, dataset: ImageInfo) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns image and label of one record of any data set, completely checked.

    Returns:
        (uint8 [height, width, channels], int32 scalar).

    Raises:
        tf.errors.InvalidArgumentError: a key is missing, the image is damaged or of another size, a
            box lies outside or the label is out of range.
    """
    with tf.name_scope(SCOPE):
        if dataset.image_size is None:
            encoded, label = parse_encoded_image(serialized, dataset)
            # Only some styles read the boxes.
            is_inside = tf.logical_and(encoded.boxes >= 0.0, encoded.boxes <= 1.0)
            rule = "image/object/bbox is not within 0 to 1:"
            tf.debugging.Assert(tf.reduce_all(is_inside), [rule, encoded.boxes])
            return encoded.decode(), label
        features = tf.io.parse_single_example(serialized, examples.features())
        image = decode_image(features[examples.ENCODED], dataset.channels)
        wanted = [dataset.image_size, dataset.image_size, dataset.channels]
        rule = "image is not " + " x ".join(map(str, wanted)) + ":"
        shape = tf.shape(image)
        tf.debugging.Assert(tf.reduce_all(shape == wanted), [rule, shape])
        return image, _labels(features, dataset)


def decode_strictly(serialized: tf.Tensor, dataset: ImageInfo) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the result of `decode_example` after further checks, which training does not need.

    Raises:
        tf.errors.InvalidArgumentError: as `decode_example`, or the record lacks a key that
            converters write, or states another size.
    """
    image, label = decode_example(serialized, dataset)
    with tf.name_scope(SCOPE):
        stated = tf.io.parse_single_example(serialized, examples.other_features())
        size = tf.stack([stated[key] for key in examples.SIZE])
        shape = tf.shape(image, tf.int64)
        rule = f"{', '.join(examples.SIZE)} are not those of the image:"
        tf.debugging.Assert(tf.reduce_all(size == shape), [rule, size])
        return image, label


_XMIN, _XMAX, _YMIN, _YMAX = examples.BOX


def _photo_features():
    return {
        **examples.features(),
        # Some writers omit these keys.
        examples.FORMAT: tf.io.FixedLenFeature([], tf.string, ""),
        examples.HEIGHT: tf.io.FixedLenFeature([], tf.int64, -1),
        examples.WIDTH: tf.io.FixedLenFeature([], tf.int64, -1),
    }


def _boxes(serialized):
    # Parsed separately, since most styles need no boxes.
    feature = tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)
    with tf.name_scope(SCOPE):
        parsed = tf.io.parse_single_example(serialized, dict.fromkeys(examples.BOX, feature))
        return tf.stack([parsed[key] for key in (_YMIN, _XMIN, _YMAX, _XMAX)], axis=1)


def _labels(features, dataset):
    labels = features[examples.LABEL]
    first, last = dataset.label_offset, dataset.num_classes - 1
    in_range = tf.reduce_all(tf.logical_and(labels >= first, labels <= last))
    tf.debugging.Assert(in_range, [f"label is not {first} to {last}:", labels])
    return tf.cast(labels, tf.int32)
