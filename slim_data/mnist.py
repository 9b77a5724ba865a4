"""MNIST from its official files.

Source: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits; the files
hold a big-endian header (magic number, number of items, for images rows and columns) and
then one byte a pixel or label, all compressed with gzip.
"""

import contextlib
import gzip
import os
import struct
import zlib

import numpy as np

from slim_data import digits, examples
from slim_data.errors import DataError

LABELS = digits.LABELS
SIDE = 28
IMAGES_MAGIC = 2051
LABELS_MAGIC = 2049
FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}


def generate_examples(source, split):
    """Yields the serialized tf.Examples of a split, in the order of the files.

    Args:
        source: folder that holds the four official files.
        split: "train" or "test".

    Raises:
        DataError: a file is missing, truncated, longer than its header says, or no MNIST.
    """
    with _open(source, split) as (images, labels, count):
        for i in range(count):
            pixels = images.take(SIDE * SIDE)
            label = labels.take(1)[0]
            if label >= len(LABELS):
                raise DataError(f"{labels.path}: item {i} (from 0): label {label} is not 0 to 9")
            image = np.frombuffer(pixels, np.uint8).reshape(SIDE, SIDE, 1)
            yield examples.build_png(image, label, LABELS[label])
        images.finish()
        labels.finish()


def num_examples(source, split):
    """Returns how many examples `generate_examples` yields, from the files' headers."""
    with _open(source, split) as (_, _, count):
        return count


class _Idx:
    """Reads an idx file from front to end, with errors that name the file."""

    def __init__(self, path):
        self.path = path
        try:
            self._stream = gzip.open(path, "rb")
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stream.close()

    def header(self, magic, num_dimensions):
        """Returns the dimensions, the number of items first."""
        found, *shape = struct.unpack(f">{1 + num_dimensions}I", self.take(4 + 4 * num_dimensions))
        if found != magic:
            raise DataError(f"{self.path}: the magic number must be {magic}. Received: {found}")
        return shape

    def take(self, size):
        """Returns the next `size` bytes."""
        data = self._read(size)
        if len(data) < size:
            raise DataError(f"{self.path}: the file is truncated")
        return data

    def finish(self):
        """Checks that nothing follows; reading on also makes gzip compare its checksum."""
        if self._read(1):
            raise DataError(f"{self.path}: the file is longer than its header says")

    def _read(self, size):
        try:
            return self._stream.read(size)
        except EOFError:
            raise DataError(f"{self.path}: the file is truncated") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{self.path}: the file is not valid gzip ({error})") from None
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror}") from error


@contextlib.contextmanager
def _open(source, split):
    """Yields (images, labels, number of both) with the headers read and checked."""
    every = [name for pair in FILES.values() for name in pair]
    missing = [name for name in every if not os.path.isfile(os.path.join(source, name))]
    if missing:
        raise DataError(
            f"`raw_dir` must hold the four official files of MNIST, {', '.join(every)}. "
            f"Received: raw_dir={str(source)!r} without {', '.join(missing)}"
        )
    paths = [os.path.join(source, name) for name in FILES[split]]
    with _Idx(paths[0]) as images, _Idx(paths[1]) as labels:
        count, *size = images.header(IMAGES_MAGIC, 3)
        (num_labels,) = labels.header(LABELS_MAGIC, 1)
        if size != [SIDE, SIDE]:
            raise DataError(f"{paths[0]}: images must be 28 x 28. Received: {size[0]} x {size[1]}")
        if num_labels != count:
            raise DataError(f"{paths[1]}: {num_labels} labels for {count} images")
        if count == 0:
            raise DataError(f"{paths[0]}: the file holds no images")
        yield images, labels, count
