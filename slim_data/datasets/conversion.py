"""Conversion of a data set's source to a folder of shards and labels."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence

from slim_data.common import progress
from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError, write_errors_of
from slim_data.datasets import registry
from slim_data.datasets.sources import labels_file, tfds_source
from slim_data.tfrecord import record_files, shards, writing

SOURCES = ("download", "files", "tfds")


def convert(
    name: str,
    dataset_dir: str | os.PathLike,
    *,
    shard: bool | None = None,
    train_shards: int | None = None,
    source: str | None = None,
    raw_dir: str | os.PathLike | None = None,
    tfds_dir: str | os.PathLike | None = None,
    labels: Sequence[str] | None = None,
    allow_other_archives: bool = False,
    num_processes: int | None = 1,
    report: Callable[[str], object] | None = None,
) -> dict[str, list[str]]:
    """Writes all splits of a data set as TFRecords, and `labels.txt`.

    Existing whole files are kept. The same source gives the same bytes, for any number of
    processes.

    Args:
        name: one of `DATASETS`.
        dataset_dir: folder to write to; created if absent.
        shard: True writes `train-00000-of-01000` and so on; False writes one file per split,
            `train-mnist.tfrecord`. Default: False, except for the flowers, with 5 files per split.
        train_shards: number of training files, only with `shard`; default 1000.
        source: source of the images, for data sets that no package contains:
            "download" (default): official files in `raw_dir`; missing ones are downloaded;
            "files": official files in `raw_dir`, without downloads;
            "tfds": tensorflow-datasets, which downloads and prepares the data itself.
        raw_dir: folder of the official files, `dataset_dir` by default.
        tfds_dir: tensorflow-datasets' `data_dir`, only with source "tfds".
        labels: names of the classes 0, 1, ..., only for `idx`.
        allow_other_archives: whether to accept archives whose checksums are not official.
        num_processes: maximum number of processes; None: one per core. More than one need
            a main part guarded by `if __name__ == "__main__":`.
        report: function of a line of text, called after each step. If given, a terminal
            also shows progress bars.

    Returns:
        {split: list of paths}.

    Raises:
        DataError: an argument is wrong, the source is missing, damaged or not official, or the
            folder holds files of another conversion or is not writable.

    Example:
        >>> convert("digits", "/data/digits", shard=True, train_shards=2)["test"]
        ['/data/digits/test-00000-of-00001']
    """
    builder = _source(name, dataset_dir, source, raw_dir, tfds_dir, labels)
    dataset = builder.info
    paths = _paths(dataset, dataset_dir, shard, train_shards)
    for split, wanted in paths.items():
        shards.refuse_others(dataset_dir, split, wanted)
    bar = progress.no_bar if report is None else progress.progress_bar
    report = report or progress.ignore
    to_write = [split for split in paths if not _is_done(builder, report, split, paths[split])]
    if not to_write and os.path.isfile(os.path.join(dataset_dir, labels_file.NAME)):
        report("Dataset files already exist. Exiting without re-creating them.")
        return paths

    if source != "files":
        builder.prepare(report, bar)
    if not allow_other_archives:
        builder.check_official()
    sizes = {split: _size(builder, split, len(paths[split])) for split in to_write}
    with write_errors_of("dataset_dir", dataset_dir):
        os.makedirs(dataset_dir, exist_ok=True)
        for split, size in sizes.items():
            with bar(split, size) as advance:
                writing.write_shards(
                    functools.partial(builder.generate_examples, split),
                    paths[split],
                    size,
                    fingerprint={"dataset": name, **builder.fingerprint()},
                    num_processes=num_processes,
                    progress=advance,
                )
            report(f"Wrote {size} {split} images to {shards.first_and_last(paths[split])}")
        labels_file.write_labels(dataset_dir, dataset.labels, dataset.label_offset)
    report("")
    report(f"Finished converting the {dataset.title} dataset!")
    return paths


def _source(name, dataset_dir, source, raw_dir, tfds_dir, labels):
    """Returns the `DatasetBuilder` for the conversion."""
    builder = registry.find_builder(name)
    if builder.program is not None:
        raise DataError(f"`{name}` is converted by: python -m slim_data.{builder.program}")
    if source is not None and source not in SOURCES:
        raise DataError(
            f"`source` must be one of {', '.join(SOURCES)}. Received: source={source!r}"
        )
    if not builder.has_raw_dir:
        _refuse_given(f"for {name}", source=source, raw_dir=raw_dir, tfds_dir=tfds_dir)
    if not builder.takes_labels:
        _refuse_given(f"for {name}", labels=labels)
    if source == "tfds":
        _refuse_given("with source='tfds'", raw_dir=raw_dir)
        if builder.tfds_name is None:
            _refuse_given(f"for {name}", source=source)
        return tfds_source.TfdsSource(builder, tfds_dir)
    _refuse_given("without source='tfds'", tfds_dir=tfds_dir)
    raw_dir = dataset_dir if raw_dir is None else raw_dir
    return builder(raw_dir, **({"labels": labels} if builder.takes_labels else {}))


def _refuse_given(case, **arguments):
    for argument, value in arguments.items():
        if value is not None:
            raise DataError(f"`{argument}` has no meaning {case}. Received: {argument}={value!r}")


def _paths(dataset, dataset_dir, shard, train_shards):
    shard = dataset.is_sharded if shard is None else shard
    num_shards = dict(dataset.num_shards)
    if train_shards is not None:
        if not shard:
            raise DataError(
                f"`train_shards` needs shard=True. "
                f"Received: train_shards={train_shards}, shard={shard}"
            )
        check_at_least(1, train_shards=train_shards)
        num_shards["train"] = train_shards
    paths = {}
    for split in dataset.splits:
        found = shards.shard_names(split, num_shards.get(split, 1))
        files = found if shard else [shards.single_name(split, dataset.name)]
        paths[split] = [os.path.join(dataset_dir, file) for file in files]
    return paths


def _is_done(builder, report, split, paths):
    """Returns True if all files of a split exist and are whole."""
    if not all(os.path.isfile(path) for path in paths):
        return False
    try:
        size = record_files.count_examples(paths)
    except DataError as error:
        report(f"{error}. Writing the {split} files again.")
        return False
    fingerprint = {"dataset": builder.info.name}
    with contextlib.suppress(DataError):  # the source may be gone
        fingerprint |= builder.fingerprint()
    known = writing.known_fingerprint(paths)
    if known.get("num_examples", size) != size:
        return False
    for key, value in fingerprint.items():
        if known and known.get(key) != value:
            raise DataError(
                f"`dataset_dir` already holds {split} files of another conversion ({key}: "
                f"{known.get(key)!r}, now {value!r}): choose another folder. "
                f"Received: dataset_dir={os.path.dirname(paths[0])!r}"
            )
    return True


def _size(builder, split, num_shards):
    size = builder.num_examples(split)
    if not size:
        raise DataError(f"{builder.info.name} must have {split} examples. Received: none")
    if num_shards > size and split == "train":
        raise DataError(
            f"`train_shards` must be at most the number of examples, {size}. "
            f"Received: train_shards={num_shards}"
        )
    if num_shards > size:
        raise DataError(
            f"`shard` must be False: {builder.info.name} has fewer {split} examples, {size}, than "
            f"files, {num_shards}"
        )
    return size
