"""Records of ImageNet (ILSVRC 2012) from images, classes, class names and bounding boxes.

Source: O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 2015.
"""

import dataclasses
import functools
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


@dataclasses.dataclass(frozen=True)
class ExampleBuilder:
    """Makes serialized tf.Examples of ImageNet's images.

    Args:
        names: {WordNet id: names} of the classes, in their order from 1.
        raw_side: None keeps images as JPEG; a positive number stores raw pixels, resized to squares
            of this side; 0 stores them in the original size.
    """

    names: Mapping[str, str]
    raw_side: int | None

    @functools.cached_property
    def _labels(self):
        return {synset: i for i, synset in enumerate(self.names, 1)}

    def build(
        self, data: bytes, filename: str, synset: str, boxes: Sequence[Sequence[float]] = ()
    ) -> bytes:
        """Returns the example of a JPEG or PNG file with these bytes."""
        encoded, image_format, size = self._encoded(data)
        return examples.build_example(
            encoded,
            image_format,
            size,
            self._labels[synset],
            self.names[synset],
            synset=synset,
            filename=filename,
            boxes=boxes,
        )

    def for_files(self, box_file: str, files: Iterable[str]) -> Callable[[str, bytes], bytes]:
        """Returns a function of a file `<WordNet id>/<name>` and its bytes that adds its boxes.

        See `image_folders.Build`.
        """
        boxes = bounding_boxes.read_boxes(box_file, {os.path.basename(file) for file in files})

        def build(file, data):
            synset, name = os.path.split(file)
            return self.build(data, name, synset, boxes.get(name, ()))

        return build

    def _encoded(self, data):
        """Returns (bytes, format, (height, width, 3)) for the record."""
        if self.raw_side is None:
            encoded, size = image_files.as_jpeg(data)
            return encoded, "JPEG", size
        pixels = image_files.decode_image(data)
        if self.raw_side:
            pixels = image_files.resize_image(pixels, self.raw_side)
        return pixels.tobytes(), "RAW", pixels.shape
