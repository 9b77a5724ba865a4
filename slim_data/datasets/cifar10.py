"""CIFAR-10 from one of its two official archives, which hold the same images in the same order.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. An image is
1,024 bytes of each of red, green and blue, row by row. The binary version's files are records of
one byte for the label and such an image; the python version's are pickles of a dictionary of a
uint8 array `data` of shape [images, 3072] and a list `labels`.
"""

import os

import numpy as np

from slim_data.common.errors import DataError
from slim_data.files import archives, checksums, download, pickles
from slim_data.tfrecord import examples

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
CHANNELS = 3
IMAGE_SIZE = SIDE * SIDE * CHANNELS
MAX_FILE_SIZE = 2**26  # the official ones have half of it

PYTHON = "cifar-10-python.tar.gz"
BINARY = "cifar-10-binary.tar.gz"
ARCHIVES = (PYTHON, BINARY)  # the first one that is there is read
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
DOWNLOADS = (
    download.File(
        name=PYTHON,
        urls=(f"https://www.cs.toronto.edu/~kriz/{PYTHON}",),
        size=170498071,
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
)


def missing(source):
    """Returns the `download.File`s that a folder lacks: none where it holds either archive."""
    if any(os.path.isfile(os.path.join(source, name)) for name in ARCHIVES):
        return []
    return list(DOWNLOADS)


def identity(source):
    """Returns what the examples' content depends on."""
    return checksums.identity([_path(source)])


def _path(source):
    """Returns the path of the archive to read."""
    for name in ARCHIVES:
        path = os.path.join(source, name)
        if os.path.isfile(path):
            return path
    raise DataError(
        f"`raw_dir` must hold {PYTHON} or {BINARY}, the official archives of CIFAR-10. "
        f"Received: raw_dir={str(source)!r}"
    )


def generate_examples(source, split, start=0, stop=None):
    """Yields the serialized tf.Examples of a split, in the order of the files' numbers.

    Nothing is extracted: whatever else the archive holds is not touched.

    Args:
        source: folder that holds `cifar-10-python.tar.gz` or `cifar-10-binary.tar.gz`.
        split: "train" or "test".
        start: number of the first example to yield, counted from 0.
        stop: number of the example to end before; by default there is none.

    Raises:
        DataError: the archive is missing, damaged or no CIFAR-10.
    """
    first = 0
    for images, labels in _batches(source, split):
        end = first + len(labels)
        for i in range(max(start, first), end if stop is None else min(stop, end)):
            image = images[i - first].reshape(CHANNELS, SIDE, SIDE).transpose(1, 2, 0)
            label = labels[i - first]
            yield examples.build_png(image, label, LABELS[label])
        first = end
        if stop is not None and first >= stop:
            return


def num_examples(source, split):
    """Returns how many examples `generate_examples` yields, after a check of the whole archive."""
    path = _path(source)
    archives.check_whole(path)
    return sum(len(labels) for _, labels in _batches(source, split))


def _batches(source, split):
    """Yields (images, labels) of each file: uint8 [n, 3072] and n integers."""
    path = _path(source)
    name = os.path.basename(path)
    parse = {PYTHON: _parse_python, BINARY: _parse_binary}[name]
    with archives.opened(path) as archive:
        members = archives.files(archive)
        for file in FILES[name][split]:
            if file not in members:
                raise DataError(f"{path}: the archive lacks {file}")
            data = archives.read(archive, members[file], MAX_FILE_SIZE)
            try:
                images, labels = parse(data)
                _check_labels(labels)
            except DataError as error:
                raise DataError(f"{path}: {file}: {error}") from None
            yield images, labels


def _parse_binary(data):
    if len(data) % (1 + IMAGE_SIZE):
        raise DataError(
            f"the size must be a multiple of {1 + IMAGE_SIZE} bytes. Received: {len(data)}"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, 1 + IMAGE_SIZE)
    return records[:, 1:], records[:, 0].tolist()


def _parse_python(data):
    batch = pickles.read(data)
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
