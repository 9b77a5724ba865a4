"""Records of ImageNet (ILSVRC 2012) from images, classes, class names and bounding boxes.

Source: O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from slim_data.common.errors import DataError
from slim_data.datasets.imagenet import bounding_boxes
from slim_data.datasets.sources import image_files
from slim_data.files.text_files import read_lines
from slim_data.tfrecord import examples

PATTERN = "*.JPEG"


def read_names(path: str, synsets: Iterable[str]) -> dict[str, str]:
    """Returns {WordNet id: names} of the requested classes.

    Args:
        path: lines of a WordNet id, a tab and names.
    """
    lines = read_lines(path, "imagenet_metadata_file")
    pairs = (line.split("\t", 1) for line in lines)
    names = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    for synset in synsets:
        if synset not in names:
            raise DataError(f"`imagenet_metadata_file` {path} lacks the names of {synset}")
    return {synset: names[synset] for synset in synsets}


def example_builder(
    names: Mapping[str, str], box_file: str, raw_side: int | None, files: Iterable[str]
) -> Callable[[str, bytes], bytes]:
    """Returns a function that makes an example from an image, see `image_folders.split_source`.

    Args:
        names: {WordNet id: names} of the classes, in their order from 1.
        files: images, as `<WordNet id>/<name>`.
    """
    boxes = bounding_boxes.read_boxes(box_file, {os.path.basename(file) for file in files})
    labels = class_numbers(names)

    def build(file, data):
        synset, name = os.path.split(file)
        found = boxes.get(name, ())
        return image_example(data, name, synset, labels[synset], names[synset], found, raw_side)

    return build


def class_numbers(names: Iterable[str]) -> dict[str, int]:
    """Returns {WordNet id: number} of the classes in their order, starting with 1."""
    return {synset: i for i, synset in enumerate(names, 1)}


def image_example(
    data: bytes,
    filename: str,
    synset: str,
    label: int,
    text: str,
    boxes: Sequence[Sequence[float]],
    raw_side: int | None,
) -> bytes:
    """Returns the serialized tf.Example of an image.

    Args:
        data: bytes of a JPEG or PNG file.
        raw_side: None keeps the image as JPEG; a positive number stores raw pixels, resized to a
            square of this side; 0 stores them in the original size.
    """
    encoded, image_format, size = _image(data, raw_side)
    return examples.build_example(
        encoded, image_format, size, label, text, synset=synset, filename=filename, boxes=boxes
    )


def _image(data, raw_side):
    """Returns (bytes, format, (height, width, 3)) for the record."""
    if raw_side is None:
        encoded, size = image_files.as_jpeg(data)
        return encoded, "JPEG", size
    pixels = image_files.decode_image(data)
    if raw_side:
        pixels = image_files.resize_image(pixels, raw_side)
    return pixels.tobytes(), "RAW", pixels.shape
