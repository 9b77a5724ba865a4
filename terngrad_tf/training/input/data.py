"""Descriptions of data sets for training and evaluation."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import slim_data
from terngrad_tf.training.configs.data_config import DataConfig
from terngrad_tf.training.errors import UserError, require

# A TFRecord file ends with its last record's checksum.
_CHECKSUM_BYTES = 4


@dataclasses.dataclass(frozen=True)
class DatasetShard:
    """A part of a data set on disk, and the share that this process reads.

    Args:
        num_classes: number of a network's outputs.
        num_examples: number of records in this process's files or, if processes have different
            files, of all processes.
        num_shards: number of processes that divide the files; `index` is this process's.
        seed_offset: added to the seed, so that processes with different files draw different random
            numbers.
        shares_batches: whether processes take rows of the same batches, each reading all files, so
            that a step's examples do not depend on the number of processes.
    """

    num_classes: int
    channels: int
    num_examples: int
    num_shards: int = 1
    index: int = 0
    seed_offset: int = 0
    shares_batches: bool = False


def check_subset(name: str, subset: str, argument: str = "subset") -> None:
    """Raises UserError if a data set lacks a split, slim_data.DataError if it is unknown."""
    splits = slim_data.find_builder(name).info.splits
    require(subset in splits, argument, f"must be one of {', '.join(splits)} for {name}", subset)


def find_dataset(config: DataConfig) -> DatasetShard:
    """Finds a data set on disk.

    If `config` skips corrupt records, files may be damaged; records are then counted up to the
    first one that hides the start of the next.
    """
    name, _, subset = config.place
    check_subset(name, subset)
    info = config.info
    files = slim_data.find_files(*config.place)
    num_examples = slim_data.count_examples(files, up_to_faults=config.skip_corrupt_records)
    return DatasetShard(info.num_classes, info.channels, num_examples)


def fingerprint(config: DataConfig) -> str:
    """Returns a digest of the files' names, sizes and last records' checksums."""
    digest = hashlib.sha256()
    for path in slim_data.find_files(*config.place):
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _CHECKSUM_BYTES))
            checksum = file.read()
        digest.update(f"{os.path.basename(path)} {size} {checksum.hex()}\n".encode())
    return digest.hexdigest()[:16]


def among_processes(
    own: DatasetShard, fingerprints: Sequence[str], num_examples: Sequence[int], index: int
) -> DatasetShard:
    """Returns a process's part of the data: its share of common files, or all of its own files.

    Raises:
        UserError: some processes have the same files and others do not.
    """
    different = len(set(fingerprints))
    if different == 1:
        return dataclasses.replace(own, num_shards=len(fingerprints), index=index)
    if different == len(fingerprints):
        total = sum(num_examples)
        return dataclasses.replace(own, num_examples=total, seed_offset=index)
    groups = {}
    for host, found in enumerate(fingerprints):
        groups.setdefault(found, []).append(f"worker {host}")
    listed = "; others on ".join(", ".join(group) for group in groups.values())
    raise UserError(
        "`data_dir` must hold the same files on all workers or, on each, files that no other has. "
        f"Received: the same on {listed}"
    )


def find_style(info: slim_data.DatasetInfo, preprocessing: str) -> str | None:
    """Returns a network's style, or None, the data set's default, if the data set lacks it."""
    builders = slim_data.DATASETS.values()
    styles = {style for builder in builders for style in builder.info.preprocessings}
    rule = f"must be one of {', '.join(sorted(styles))}"
    require(preprocessing in styles, "preprocessing", rule, preprocessing)
    return preprocessing if preprocessing in info.preprocessings else None


def load(
    config: DataConfig,
    batch_size: int,
    image_size: int,
    training: bool,
    *,
    preprocessing: str,
    **arguments: Any,
) -> tf.data.Dataset:
    """Loads batches of images and labels by `slim_data.load`.

    TensorFlow's autotuning is off: its thread sleeps up to a minute, and users of the data would
    wait for it.

    Args:
        config: by default, twice as many images as CPU cores are decoded concurrently: results keep
            their order, so a slow image must not leave cores idle.
    """
    examples = slim_data.load(
        *config.place,
        batch_size,
        image_size,
        training,
        preprocessing=find_style(config.info, preprocessing),
        repeat=training,
        num_classes=config.num_classes,
        skip_corrupt_records=config.skip_corrupt_records,
        num_readers=config.num_readers,
        num_parallel_calls=config.num_preprocess_threads or 2 * (os.cpu_count() or 1),
        **arguments,
    )
    return without_autotuning(examples)


def without_autotuning(examples: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a data set with autotuning off, see `load`."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return examples.with_options(options)
