"""The files that a split of a data set was written to."""

import os

from slim_data.common.errors import DataError
from slim_data.datasets import registry
from slim_data.tfrecord import record_files, shards


def find_files(name, data_dir, split):
    """Returns the sorted paths of the files that hold a split of a data set.

    Args:
        name: name of the data set.
        data_dir: folder that `convert` wrote to.
        split: one of the data set's splits.

    Raises:
        DataError: the data set has no such split, or its files are missing, incomplete or empty.
    """
    dataset = registry.info(name)
    dataset.check_split(split)
    files = shards.find(data_dir, split)
    if not files:
        state = "holds neither" if os.path.isdir(data_dir) else "is no folder with"
        program = f"slim_data.download_and_convert_data --dataset_name {name} --dataset_dir"
        if dataset.source is None:
            program = (
                f"slim_data.find_records {data_dir} (of train/<class>/* and val/<class>/*) or "
            )
            program += "with: bash scripts/download_and_preprocess_imagenet.sh"
        raise DataError(
            f"No {split} files of {name}: data_dir={str(data_dir)!r} {state} "
            f"{split}-?????-of-????? or {split}-*.tfrecord. Write them with: python -m "
            f"{program} {data_dir}"
        )
    if record_files.total_size(files) == 0:
        raise DataError(f"No {split} examples of {name}: all files in {data_dir} are empty")
    return files
