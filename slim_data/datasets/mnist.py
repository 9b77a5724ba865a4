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

from slim_data.common.errors import DataError
from slim_data.datasets import digits
from slim_data.files import checksums, download, opening
from slim_data.tfrecord import examples

LABELS = digits.LABELS
SIDE = 28
IMAGES_MAGIC = 2051
LABELS_MAGIC = 2049
FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}
MAX_ITEMS = 2**24  # 12 GB of pixels: no header is believed that declares more
HOSTS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
)
DOWNLOADS = tuple(
    download.File(name, tuple(f"{host}/{name}" for host in HOSTS), size, sha256)
    for name, size, sha256 in (
        (
            "train-images-idx3-ubyte.gz",
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        (
            "t10k-images-idx3-ubyte.gz",
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        (
            "t10k-labels-idx1-ubyte.gz",
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )
)


def missing(source):
    """Returns the `download.File`s that a folder lacks."""
    return download.missing(DOWNLOADS, source)


def identity(source):
    """Returns what the examples' content depends on."""
    return checksums.identity(_paths(source))


def _paths(source):
    """Returns the paths of the four files."""
    every = [name for pair in FILES.values() for name in pair]
    lacking = [name for name in every if not os.path.isfile(os.path.join(source, name))]
    if lacking:
        raise DataError(
            f"`raw_dir` must hold the four official files of MNIST, {', '.join(every)}. "
            f"Received: raw_dir={str(source)!r} without {', '.join(lacking)}"
        )
    return [os.path.join(source, name) for name in every]


def generate_examples(source, split, start=0, stop=None):
    """Yields the serialized tf.Examples of a split, in the order of the files.

    Args:
        source: folder that holds the four official files.
        split: "train" or "test".
        start: number of the first example to yield, counted from 0.
        stop: number of the example to end before; by default there is none.

    Raises:
        DataError: a file is missing, truncated or no MNIST.
    """
    with _open(source, split) as (images, labels):
        images.skip(start * SIDE * SIDE)
        for label in labels[start:stop]:
            image = np.frombuffer(images.take(SIDE * SIDE), np.uint8).reshape(SIDE, SIDE, 1)
            yield examples.build_png(image, label, LABELS[label])


def num_examples(source, split):
    """Returns how many examples `generate_examples` yields, after a check of the whole files.

    Raises:
        DataError: as `generate_examples`; or a file is damaged or longer than its header says.
    """
    with _open(source, split) as (images, labels):
        images.skip(len(labels) * SIDE * SIDE)
        images.finish()
        return len(labels)


class _Idx:
    """Reads an idx file from front to end, with errors that name the file."""

    def __init__(self, path):
        self.path = path
        try:
            self._file = open(path, "rb", opener=opening.regular)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from error
        self._stream = gzip.open(self._file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stream.close()
        self._file.close()

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

    def skip(self, size):
        """Passes over the next `size` bytes."""
        for position in range(0, size, 2**20):
            self.take(min(2**20, size - position))

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
    """Yields (images after their header, labels as a list of integers), both checked."""
    _paths(source)
    paths = [os.path.join(source, name) for name in FILES[split]]
    with _Idx(paths[0]) as images, _Idx(paths[1]) as labels:
        count, *size = images.header(IMAGES_MAGIC, 3)
        (num_labels,) = labels.header(LABELS_MAGIC, 1)
        if size != [SIDE, SIDE]:
            raise DataError(f"{paths[0]}: images must be 28 x 28. Received: {size[0]} x {size[1]}")
        if num_labels != count:
            raise DataError(f"{paths[1]}: {num_labels} labels for {count} images")
        if not 0 < count <= MAX_ITEMS:
            number = "no images" if count == 0 else f"more than {MAX_ITEMS} images: {count}"
            raise DataError(f"{paths[0]}: the file holds {number}")
        values = list(labels.take(count))
        labels.finish()
        for i, label in enumerate(values):
            if label >= len(LABELS):
                raise DataError(f"{paths[1]}: item {i} (from 0): label {label} is not 0 to 9")
        yield images, values
