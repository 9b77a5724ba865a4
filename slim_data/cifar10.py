"""CIFAR-10 from its official archive.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009; the binary
version. Its archive holds files of records: one byte for the label, then 1,024 bytes of each of
red, green and blue, row by row.
"""

import contextlib
import gzip
import os
import tarfile
import zlib

import numpy as np

from slim_data import examples
from slim_data.errors import DataError

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
CHANNELS = 3
ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
FILES = {
    "train": tuple(f"{FOLDER}/data_batch_{i}.bin" for i in range(1, 6)),
    "test": (f"{FOLDER}/test_batch.bin",),
}
RECORD_SIZE = 1 + SIDE * SIDE * CHANNELS


def generate_examples(source, split):
    """Yields the serialized tf.Examples of a split, in the order of the files' numbers.

    Nothing is extracted: whatever else the archive holds is not touched.

    Args:
        source: folder that holds `cifar-10-binary.tar.gz`.
        split: "train" or "test".

    Raises:
        DataError: the archive is missing, damaged or no CIFAR-10.
    """
    with _open(source) as archive:
        _check_whole(archive.name)
        for member in _members(archive, split):
            file = archive.extractfile(member)
            for i in range(member.size // RECORD_SIZE):
                record = np.frombuffer(file.read(RECORD_SIZE), np.uint8)
                label = record[0]
                if label >= len(LABELS):
                    raise DataError(
                        f"{archive.name}: {member.name}: record {i} (counted from 0): "
                        f"label is not 0 to 9: {label}"
                    )
                image = record[1:].reshape(CHANNELS, SIDE, SIDE).transpose(1, 2, 0)
                yield examples.build_png(image, label, LABELS[label])


def num_examples(source, split):
    """Returns how many examples `generate_examples` yields, from the sizes of the files."""
    with _open(source) as archive:
        return sum(member.size for member in _members(archive, split)) // RECORD_SIZE


@contextlib.contextmanager
def _open(source):
    """Yields the archive; what goes wrong while it is read becomes one line."""
    path = os.path.join(source, ARCHIVE)
    if not os.path.isfile(path):
        raise DataError(
            f"`raw_dir` must hold {ARCHIVE}, the official binary version of CIFAR-10. "
            f"Received: raw_dir={str(source)!r}"
        )
    try:
        with tarfile.open(path, "r:gz") as archive:
            yield archive
    except EOFError:
        raise DataError(f"{path}: the file is truncated") from None
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the file is no valid .tar.gz ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _check_whole(path):
    """Reads the whole archive, which makes gzip compare its checksum."""
    with gzip.open(path, "rb") as stream:
        while stream.read(2**20):
            pass


def _members(archive, split):
    """Returns the archive's entries of a split's files."""
    members = []
    for name in FILES[split]:
        try:
            member = archive.getmember(name)
        except KeyError:
            raise DataError(f"{archive.name}: the archive lacks {name}") from None
        if not member.isreg():
            raise DataError(f"{archive.name}: {name} is no regular file")
        if member.size == 0 or member.size % RECORD_SIZE:
            raise DataError(
                f"{archive.name}: the size of {name} must be a positive multiple of "
                f"{RECORD_SIZE} bytes. Received: {member.size}"
            )
        members.append(member)
    return members
