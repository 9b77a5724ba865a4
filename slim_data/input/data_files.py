"""Finds the files of a data set's splits."""

import os

from slim_data.common.errors import DataError
from slim_data.datasets import registry
from slim_data.tfrecord import record_files, shards


def find_files(name: str, data_dir: str | os.PathLike, split: str) -> list[str]:
    """Returns the sorted paths of the files of a split.

    Args:
        name: one of `DATASETS`.
        data_dir: folder written by `convert`.
        split: one of the data set's splits.

    Raises:
        DataError: the data set has no such split, or its files are missing, incomplete or empty.
    """
    builder = registry.find_builder(name)
    builder.info.check_split(split)
    files = shards.find_shards(data_dir, split)
    if not files:
        state = "holds no" if os.path.isdir(data_dir) else "is not a folder with"
        raise DataError(
            f"No {split} files of {name}: data_dir={str(data_dir)!r} {state} "
            f"{split}-?????-of-????? or {split}-*.tfrecord. Write them with: "
            f"{builder.command(data_dir)}"
        )
    if record_files.total_size(files) == 0:
        raise DataError(f"No {split} examples of {name}: all files in {data_dir} are empty")
    return files
