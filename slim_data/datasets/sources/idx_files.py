"""Reads data sets in idx, the format of MNIST's files.

A gzip file holds a big-endian header (magic number, number of items, and rows and columns of
images), then one byte per pixel or label.
"""

import contextlib
import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from slim_data.common.errors import DataError, os_errors_of
from slim_data.datasets.builder import DatasetBuilder
from slim_data.files import download, opening

SIDE = 28
NAMES = (
    *("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    *("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
)
_IMAGES_MAGIC = 2051
_LABELS_MAGIC = 2049
_MAX_ITEMS = 2**24  # 12 GB of pixels; headers that declare more are refused


def official_files(
    hosts: Sequence[str], sizes: Sequence[int], checksums: Sequence[str]
) -> tuple[download.File, ...]:
    """Returns the `download.File`s of the four files, in the order of `NAMES`.

    Args:
        hosts: addresses of folders that hold the files.
    """
    return tuple(
        download.File(name, tuple(f"{host}/{name}" for host in hosts), size, sha256)
        for name, size, sha256 in zip(NAMES, sizes, checksums, strict=True)
    )


class IdxBuilder(DatasetBuilder):
    """Base class of data sets of four such files with grey images of 28 x 28 pixels."""

    def num_examples(self, split: str) -> int:
        """See the base class."""
        with self._opened(split) as (images, labels):
            images.skip(len(labels) * SIDE * SIDE)
            images.finish()
            return len(labels)

    def generate_images(
        self, split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[np.ndarray, int]]:
        """See the base class; in the order of the files."""
        with self._opened(split) as (images, labels):
            images.skip(start * SIDE * SIDE)
            for label in labels[start:stop]:
                image = np.frombuffer(images.take(SIDE * SIDE), np.uint8)
                yield image.reshape(SIDE, SIDE, 1), label

    @contextlib.contextmanager
    def _opened(self, split):
        """Yields (images after their header, labels as a list of integers), both checked."""
        paths = self.raw_paths()
        paths = paths[:2] if split == "train" else paths[2:]
        with _IdxFile(paths[0]) as images, _IdxFile(paths[1]) as labels:
            count, *size = images.header(_IMAGES_MAGIC, 3)
            (num_labels,) = labels.header(_LABELS_MAGIC, 1)
            if size != [SIDE, SIDE]:
                raise DataError(
                    f"{paths[0]}: images must be 28 x 28. Received: {size[0]} x {size[1]}"
                )
            if num_labels != count:
                raise DataError(f"{paths[1]}: {num_labels} labels for {count} images")
            if not 0 < count <= _MAX_ITEMS:
                number = "no images" if count == 0 else f"more than {_MAX_ITEMS} images: {count}"
                raise DataError(f"{paths[0]}: the file holds {number}")
            values = list(labels.take(count))
            labels.finish()
            last = len(self.info.labels) - 1
            for i, label in enumerate(values):
                if label > last:
                    raise DataError(
                        f"{paths[1]}: item {i} (from 0): label {label} is not 0 to {last}"
                    )
            yield images, values


class _IdxFile:
    """Reads an idx file sequentially, with errors that name the file."""

    def __init__(self, path):
        self.path = path
        with os_errors_of(path):
            self._file = open(path, "rb", opener=opening.regular_file)
        self._stream = gzip.open(self._file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stream.close()
        self._file.close()

    def header(self, magic, num_dimensions):
        """Returns the dimensions, starting with the number of items."""
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
        """Skips the next `size` bytes."""
        for position in range(0, size, 2**20):
            self.take(min(2**20, size - position))

    def finish(self):
        """Checks that the file ends here, which makes gzip compare its checksum."""
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
