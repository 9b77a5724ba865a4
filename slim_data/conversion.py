"""From a data set's source to its folder of shards and labels."""

import functools
import itertools
import numbers
import os

from slim_data import datasets, framing, shards, writing
from slim_data.errors import DataError

LABELS_FILE = "labels.txt"
DEFAULT_TRAIN_SHARDS = 1000


def convert(name, dataset_dir, *, shard=False, train_shards=None, raw_dir=None, report=None):
    """Writes a data set as TFRecords: every split of it, and `labels.txt`.

    Files that are already there and whole are kept. The same source gives the same bytes.

    Args:
        name: name of the data set, one of `DATASETS`.
        dataset_dir: folder to write to; made if absent.
        shard: whether to write `train-00000-of-01000` and so on, and `test-00000-of-00001`,
            instead of one file a split, `train-mnist.tfrecord`.
        train_shards: number of files for training, 1000 by default; only with `shard`.
        raw_dir: folder with the files of the source, `dataset_dir` by default; only for data sets
            that are made from such files.
        report: function of a line of text, called with what was done.

    Returns:
        {split: list of paths}.

    Raises:
        DataError: an argument is wrong, the source is missing or damaged, or the folder holds
            files of another conversion or cannot be written to.

    Example:
        >>> convert("digits", "/data/digits", shard=True, train_shards=2)["test"]
        ['/data/digits/test-00000-of-00001']
    """
    dataset = datasets.info(name)
    report = report or (lambda line: None)
    if raw_dir is not None and not dataset.has_raw_dir:
        raise DataError(f"`raw_dir` has no meaning for {name}. Received: raw_dir={str(raw_dir)!r}")
    paths = _paths(dataset, dataset_dir, shard, train_shards)
    for split, wanted in paths.items():
        shards.refuse_others(dataset_dir, split, wanted)
    source = dataset_dir if raw_dir is None else raw_dir
    to_write = [s for s in paths if not _is_done(dataset, source, s, paths[s], report)]
    labels_path = os.path.join(dataset_dir, LABELS_FILE)
    if not to_write and os.path.isfile(labels_path):
        report("Dataset files already exist. Exiting without re-creating them.")
        return paths

    sizes = {split: _size(dataset, source, split, len(paths[split])) for split in to_write}
    try:
        os.makedirs(dataset_dir, exist_ok=True)
        for split, size in sizes.items():
            generate = functools.partial(_generate, name, source, split, size)
            writing.write(generate, paths[split], size, identity={"dataset": name})
            report(f"Wrote {size} {split} images to {shards.first_and_last(paths[split])}")
        with (
            shards.replacing(labels_path) as partial,
            open(partial, "w", encoding="utf-8") as file,
        ):
            numbered = enumerate(dataset.labels, dataset.label_offset)
            file.writelines(f"{number}:{label}\n" for number, label in numbered)
        report(f"\nFinished converting the {dataset.title} dataset!")
    except OSError as error:
        raise DataError(
            f"`dataset_dir` must be a folder that can be written to. "
            f"Received: dataset_dir={str(dataset_dir)!r} ({error})"
        ) from error
    return paths


def _paths(dataset, dataset_dir, shard, train_shards):
    if train_shards is not None and not shard:
        raise DataError(
            f"`train_shards` needs shard=True. Received: train_shards={train_shards}, shard={shard}"
        )
    is_count = isinstance(train_shards, numbers.Integral) and train_shards >= 1
    if train_shards is not None and not is_count:
        raise DataError(
            f"`train_shards` must be a positive integer. Received: train_shards={train_shards!r}"
        )
    paths = {}
    for split in dataset.splits:
        num_shards = (train_shards or DEFAULT_TRAIN_SHARDS) if split == "train" else 1
        found = shards.names(split, num_shards)
        files = found if shard else [shards.single_name(split, dataset.name)]
        paths[split] = [os.path.join(dataset_dir, file) for file in files]
    return paths


def _generate(name, source, split, size, start, stop):
    """Yields the examples start to stop - 1; to the source's end where they are its last."""
    records = datasets.info(name).source.generate_examples(source, split)
    yield from itertools.islice(records, start, None if stop == size else stop)


def _is_done(dataset, source, split, paths, report):
    if not all(os.path.isfile(path) for path in paths):
        return False
    try:
        found = framing.count_examples(paths)
    except DataError as error:
        report(f"{error}. Writing the {split} files again.")
        return False
    try:
        expected = dataset.source.num_examples(source, split)
    except DataError:
        expected = found  # the source is gone, which is no harm once it is converted
    if found != expected:
        raise DataError(
            f"`dataset_dir` already holds {found} {split} examples, which are not the {expected} "
            f"of {dataset.name}: choose another folder. "
            f"Received: dataset_dir={os.path.dirname(paths[0])!r}"
        )
    return True


def _size(dataset, source, split, num_shards):
    size = dataset.source.num_examples(source, split)
    if num_shards > size:
        raise DataError(
            f"`{split}_shards` must be at most the number of examples, {size}. "
            f"Received: {split}_shards={num_shards}"
        )
    return size
