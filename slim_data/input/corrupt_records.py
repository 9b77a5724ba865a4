"""Finds the unreadable records of a data set, in advance or after an error."""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence

from slim_data.common.errors import DataError
from slim_data.datasets import registry
from slim_data.files import file_cache
from slim_data.input import data_files
from slim_data.tfrecord import corruption, decoding


def verify(files: Sequence[str], name: str | None = None, num_classes: int | None = None) -> int:
    """Reads and checks all records.

    Args:
        files: paths of TFRecord files.
        name: name of the data set, to check keys, images and labels too. None: check only the
            framing and its checksums.
        num_classes: number of classes of own images, see `slim_data.info`.

    Returns:
        The number of records.

    Raises:
        DataError: a record is faulty; names the first file and record (from 0), and the reason.
    """
    check = None
    if name is not None:
        check = _check(registry.info(name, os.path.dirname(files[0]), num_classes))
    return sum(1 for _ in corruption.read_checked(files, check))


def corrupt_records(
    name: str, data_dir: str | os.PathLike, split: str, num_classes: int | None = None
) -> list[corruption.CorruptRecord]:
    """Returns the records that `load` skips with `skip_corrupt_records`, in order.

    Decodes all records. Above 1 GiB, the result is cached, see `file_cache`.

    Args:
        name: one of `DATASETS`.
        data_dir: as for `load`.
        split: as for `load`.
        num_classes: as for `load`.

    Returns:
        List of `corruption.CorruptRecord`.

    Raises:
        DataError: files are missing or cannot be read.
    """
    dataset = registry.info(name, data_dir, num_classes)
    check = _check(dataset)

    def compute(paths):
        found = {path: [] for path in paths}
        for _ in corruption.read_checked(
            paths, check, lambda record: found[record.path].append(record)
        ):
            pass
        return [[[r.number, r.reason, r.ends_file] for r in records] for records in found.values()]

    files = data_files.find_files(name, data_dir, split)
    labels = f"classes {dataset.label_offset} to {dataset.num_classes - 1}"
    kind = f"corrupt records of {name}, {labels}"
    found = file_cache.cached_values(kind, files, compute)
    pairs = zip(files, found, strict=True)
    return [
        corruption.CorruptRecord(path, *record) for path, records in pairs for record in records
    ]


def _check(dataset):
    return functools.partial(decoding.decode_example, dataset=dataset)


def locate_corrupt_record(
    error: Exception,
    files: Sequence[str],
    name: str | None = None,
    num_classes: int | None = None,
) -> DataError | None:
    """Returns a DataError that names the record that caused `error`, or None.

    Args:
        error: exception raised while iterating over a dataset made by `load`.
        files: paths of the dataset's files.
        name: one of `DATASETS`.
        num_classes: as for `load`.
    """
    if not corruption.is_of_record(error):
        return None
    try:
        verify(files, name, num_classes)
    except DataError as found:
        return found
    return None


@contextlib.contextmanager
def locate_corrupt_records(
    name: str, data_dir: str | os.PathLike, split: str, num_classes: int | None = None
) -> Iterator[None]:
    """Replaces an error caused by a damaged record with one that names the record.

    Args:
        name: one of `DATASETS`.
        data_dir: as for `load`.
        split: as for `load`.
        num_classes: as for `load`.

    Raises:
        DataError: a record is damaged; names the file, the record and the reason. Other errors
            pass unchanged.

    Example:
        >>> with slim_data.locate_corrupt_records("mnist", data_dir, "train"):
        ...     model.fit(slim_data.load("mnist", data_dir, "train", 64, 28, training=True))
    """
    try:
        yield
    except Exception as error:
        # The files may be gone, or may never have been read.
        if not corruption.is_of_record(error):
            raise
        explanation = locate_corrupt_record(
            error, data_files.find_files(name, data_dir, split), name, num_classes
        )
        if explanation is None:
            raise
        raise explanation from error
