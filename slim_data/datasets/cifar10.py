"""CIFAR-10 from either official archive; both hold the same images in the same order.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. An image is
1,024 bytes each of red, green and blue, row by row. Binary files hold records of a label byte and
an image; python files are pickled dictionaries of `data`, uint8 [images, 3072], and a list
`labels`.
"""

import os
from collections.abc import Iterator

import numpy as np

from slim_data.common.errors import DataError, errors_of
from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.files import archives, download, pickles
from slim_data.preprocessing import styles

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
CHANNELS = 3
IMAGE_SIZE = SIDE * SIDE * CHANNELS
MAX_FILE_SIZE = 2**26  # twice the official size

PYTHON = "cifar-10-python.tar.gz"
BINARY = "cifar-10-binary.tar.gz"
ARCHIVES = (PYTHON, BINARY)  # the first that exists is read
FILES = {
    PYTHON: {
        "train": tuple(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
        "test": ("cifar-10-batches-py/test_batch",),
    },
    BINARY: {
        "train": tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)),
        "test": ("cifar-10-batches-bin/test_batch.bin",),
    },
}


class Cifar10(DatasetBuilder):
    """60,000 photographs of ten kinds of objects, 32 x 32 pixels."""

    info = DatasetInfo(
        name="cifar10",
        title="Cifar10",
        labels=LABELS,
        channels=CHANNELS,
        image_size=SIDE,
        splits={"train": 50000, "test": 10000},
        preprocessings=styles.SMALL,
    )
    downloads = (
        download.File(
            name=PYTHON,
            urls=(f"https://www.cs.toronto.edu/~kriz/{PYTHON}",),
            size=170498071,
            sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    )
    other_checksums = (
        (BINARY, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    )
    tfds_name = "cifar10"

    def raw_paths(self) -> list[str]:
        """See the base class; either archive suffices."""
        for name in ARCHIVES:
            path = os.path.join(self.raw_dir, name)
            if os.path.isfile(path):
                return [path]
        raise DataError(
            f"`raw_dir` must hold {PYTHON} or {BINARY}, the official archives of CIFAR-10. "
            f"Received: raw_dir={str(self.raw_dir)!r}"
        )

    def missing(self) -> list[download.File]:
        """See the base class."""
        is_there = any(os.path.isfile(os.path.join(self.raw_dir, name)) for name in ARCHIVES)
        return [] if is_there else list(self.downloads)

    def num_examples(self, split: str) -> int:
        """See the base class."""
        (path,) = self.raw_paths()
        archives.check_whole(path)
        return sum(len(labels) for _, labels in self._batches(split))

    def generate_images(
        self, split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[np.ndarray, int]]:
        """See the base class; in file order, without extracting files."""
        first = 0
        for images, labels in self._batches(split):
            end = first + len(labels)
            for i in range(max(start, first), end if stop is None else min(stop, end)):
                image = images[i - first].reshape(CHANNELS, SIDE, SIDE)
                yield image.transpose(1, 2, 0), labels[i - first]
            first = end
            if stop is not None and first >= stop:
                return

    def _batches(self, split):
        """Yields (images, labels) of each file: uint8 [n, 3072] and n integers."""
        (path,) = self.raw_paths()
        name = os.path.basename(path)
        parse = {PYTHON: _parse_python, BINARY: _parse_binary}[name]
        with archives.open_archive(path) as archive:
            members = archives.list_members(archive)
            for file in FILES[name][split]:
                if file not in members:
                    raise DataError(f"{path}: the archive lacks {file}")
                data = archives.read_member(archive, members[file], MAX_FILE_SIZE)
                with errors_of(f"{path}: {file}"):
                    images, labels = parse(data)
                    _check_labels(labels)
                yield images, labels


def _parse_binary(data):
    if len(data) % (1 + IMAGE_SIZE):
        raise DataError(
            f"the size must be a multiple of {1 + IMAGE_SIZE} bytes. Received: {len(data)}"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + IMAGE_SIZE)
    return records[:, 1:], records[:, 0].tolist()


def _parse_python(data):
    batch = pickles.read_pickle(data)
    if not isinstance(batch, dict):
        raise DataError("the pickle must hold a dictionary")
    images, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
    is_array = isinstance(images, np.ndarray)
    if not is_array or images.ndim != 2 or images.shape[1] != IMAGE_SIZE:
        received = images.shape if is_array else type(images).__name__
        raise DataError(
            f"`data` must be an array of shape (images, {IMAGE_SIZE}). Received: {received}"
        )
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError("`labels` must be a list of integers")
    if not 0 < len(labels) == len(images):
        raise DataError(f"{len(labels)} labels for {len(images)} images")
    return images, labels


def _check_labels(labels):
    for i, label in enumerate(labels):
        if not 0 <= label < len(LABELS):
            raise DataError(f"record {i} (counted from 0): label is not 0 to 9: {label}")
