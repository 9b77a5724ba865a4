"""What training and evaluation need to know of a data set."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import slim_data
from terngrad_tf.training.data_config import DataConfig
from terngrad_tf.training.errors import UserError

# A TFRecord file ends in the checksum of its last record.
_CHECKSUM_BYTES = 4


@dataclasses.dataclass(frozen=True)
class DatasetShard:
    """One part of a data set on disk, and what this process reads of it.

    Args:
        num_classes: outputs a network for it has.
        channels: channels of its images.
        num_examples: records in its files; where processes have files of their own, in all of them.
        num_shards: processes that divide the files among them. Default 1.
        index: number of this process among those. Default 0.
        seed_offset: added to the seed, so that processes with files of their own differ in what
            they draw. Default 0.
        shares_batches: whether processes take rows of the same batches, each reading all files, so
            that what a step sees does not depend on their number. Default False.
    """

    num_classes: int
    channels: int
    num_examples: int
    num_shards: int = 1
    index: int = 0
    seed_offset: int = 0
    shares_batches: bool = False


def check_subset(name: str, subset: str) -> None:
    """Raises UserError unless a data set has the part, slim_data.DataError where it is unknown."""
    splits = slim_data.find_builder(name).info.splits
    if subset not in splits:
        raise UserError(
            f"`subset` must be one of {', '.join(splits)} for {name}. Received: subset={subset!r}"
        )


def find_dataset(config: DataConfig) -> DatasetShard:
    """Finds a data set on disk.

    Args:
        config: `DataConfig`. Where it leaves out corrupt records, files may be damaged; records
            are then counted up to the first that hides where the next begins.

    Returns:
        A `DatasetShard`.

    Raises:
        UserError: the data set has no such part.
        slim_data.DataError: the data set is unknown or its files are missing, empty or, unless
            they may be, damaged.
    """
    name, _, subset = config.place
    check_subset(name, subset)
    info = config.info
    files = slim_data.find_files(*config.place)
    num_examples = slim_data.count_examples(files, up_to_faults=config.skip_corrupt_records)
    return DatasetShard(info.num_classes, info.channels, num_examples)


def fingerprint(config: DataConfig) -> str:
    """Tells files from others: a digest of their names, sizes and last records' checksums.

    Args:
        config: `DataConfig`.

    Returns:
        A str.

    Raises:
        slim_data.DataError: the data set is unknown or its files are missing or empty.
    """
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
    """What a process of a cluster reads: its share of files that all have, or all files of its own.

    Args:
        own: `DatasetShard` of this process.
        fingerprints: list of str, `fingerprint` of each process's files.
        num_examples: list of int, records in each process's files.
        index: this process's place in both.

    Returns:
        A `DatasetShard`.

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
    told = "; others on ".join(", ".join(group) for group in groups.values())
    raise UserError(
        "`data_dir` must hold the same files on all workers or, on each, files that no other has. "
        f"Received: the same on {told}"
    )


def find_style(info: slim_data.DatasetInfo, preprocessing: str) -> str | None:
    """The style that a network was made for; None, a data set's own, where that does not have it.

    Args:
        info: `slim_data.DatasetInfo`.
        preprocessing: as `models.preprocessing` gives it.

    Raises:
        UserError: no data set has such a style.
    """
    builders = slim_data.DATASETS.values()
    styles = {style for builder in builders for style in builder.info.preprocessings}
    if preprocessing not in styles:
        raise UserError(
            f"`preprocessing` must be one of {', '.join(sorted(styles))}. "
            f"Received: preprocessing={preprocessing!r}"
        )
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
    """Batches of images and labels, as `slim_data.load` makes them.

    TensorFlow's autotuning is off: its thread sleeps between looks, at last for a minute, and
    whoever is done with the data has to wait until it wakes.

    Args:
        config: `DataConfig`. Images are decoded twice as many at once as there are CPU cores where
            it does not say how many: they come in their order, and one that takes long must leave
            no core without work.
        batch_size: images a batch.
        image_size: height and width in pixels.
        training: whether to shuffle and repeat.
        preprocessing: as for `find_style`.
        **arguments: further arguments of `slim_data.load`.

    Raises:
        UserError: no data set has such a style.
        slim_data.DataError: files are missing or an argument is out of range.
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
    """Returns a `tf.data.Dataset` whose autotuning is off, see `load`."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return examples.with_options(options)
