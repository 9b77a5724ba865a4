"""Reads a converted folder completely and counts its records."""

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable

from slim_data.common.errors import DataError
from slim_data.common.progress import ignore
from slim_data.datasets import registry
from slim_data.input import data_files
from slim_data.tfrecord import corruption, decoding, shards, writing

_MOST_FAULTS_SHOWN = 10  # per file


def validate(
    name: str,
    data_dir: str | os.PathLike,
    report: Callable[[str], object] = ignore,
    *,
    allow_other_counts: bool = False,
) -> dict[str, dict[str, collections.Counter[int]]]:
    """Checks every record of a data set and counts the records by file and class.

    Compares every checksum, requires every key that the converters write, and checks labels and the
    sizes of images. Each file must hold as many records as its conversion wrote or, if that is not
    known, each split as many as published. A data set of unknown size may lack a split other than
    for training, if the folder does not say that it was written.

    Args:
        data_dir: folder with all splits, or a worker's folder with training files only.
        report: function of a line of text, called with each row of a table. Rows of the first ten
            damaged records follow their file's row.
        allow_other_counts: whether to accept splits of another size than published. Default False.

    Returns:
        {split: {path: {class: number of records}}}.

    Raises:
        DataError: a record is damaged, records are missing, or files are.

    Example:
        >>> counts = validate("digits", "/data/digits")["test"]
        >>> counts["/data/digits/test-00000-of-00001"][3]
        36
    """
    dataset = registry.info(name, data_dir)
    is_part = shards.is_worker_folder(data_dir)
    splits = ["train"] if is_part else list(dataset.splits)
    left_out = [split for split in splits if _may_lack(dataset, data_dir, split)]
    splits = [split for split in splits if split not in left_out]
    files = {split: data_files.find_files(name, data_dir, split) for split in splits}
    width = max(len(os.path.basename(path)) for paths in files.values() for path in paths)
    check = functools.partial(decoding.decode_strictly, dataset=dataset)

    report(f"{'file':{width}}  records")
    read = {split: _read(split, paths, check, width, report) for split, paths in files.items()}
    _refuse([r for split in read.values() for records in split.faults.values() for r in records])
    cut = [line for split in read.values() for line in split.cut]
    if cut:
        raise DataError(f"{cut[0]}{f'; and {len(cut) - 1} more files' if len(cut) > 1 else ''}")
    found = {split: read[split].counts for split in splits}
    _report_classes(dataset, found, report)
    sizes = {s: sum(c.total() for c in counts.values()) for s, counts in found.items()}
    lacking = {split: _lacking(dataset, split, size) for split, size in sizes.items()}
    for split, size in sizes.items():
        is_known = allow_other_counts or is_part or read[split].has_known_size
        if lacking[split] and not is_known:
            raise DataError(
                f"{dataset.title} has {size}{lacking[split]} {split} records; "
                "--allow_other_counts accepts them, as of a part that was made on purpose"
            )
    shown = [f"{split} {size}{lacking[split]}" for split, size in sizes.items()]
    shown = ", ".join([*shown, *(f"no {split}" for split in left_out)])
    num_files = sum(map(len, files.values()))
    report(f"{dataset.title}: {sum(sizes.values())} records in {num_files} files, whole ({shown})")
    return found


@dataclasses.dataclass(frozen=True)
class _Split:
    """What reading a split's files found.

    Attributes:
        counts: {path: {class: number of records}}.
        faults: {path: its `CorruptRecord`s}.
        cut: a sentence for each file that has no faults and lacks records.
        has_known_size: whether the folder says how many records were written.
    """

    counts: dict[str, collections.Counter[int]]
    faults: dict[str, list[corruption.CorruptRecord]]
    cut: list[str]
    has_known_size: bool


def _read(split, paths, check, width, report):
    """Reads a split, with a row of the table for each file, and returns a `_Split`."""
    written = _written_sizes(split, paths)
    found = _Split({}, {path: [] for path in paths}, [], bool(written))
    results = corruption.read_checked(
        paths, check, lambda record: found.faults[record.path].append(record)
    )
    for path, counts in _counts_by_file(paths, results):
        found.counts[path] = counts
        report(f"{os.path.basename(path):{width}}  {counts.total():7}")
        _report_faults(found.faults[path], report)
        if not found.faults[path] and counts.total() != written.get(path, counts.total() or None):
            found.cut.append(_cut(path, counts.total(), written.get(path)))
            report(f"  {found.cut[-1]}")
    return found


def _may_lack(dataset, data_dir, split):
    """Returns True if a folder may have been written without a split, which it lacks."""
    if split == "train" or dataset.splits[split] is not None:
        return False
    any_file = os.path.join(data_dir, f"{split}-")
    return not shards.find_candidates(data_dir, split) and not writing.known_fingerprint([any_file])


def _written_sizes(split, paths):
    """Returns {path: number of records that its conversion wrote}, {} if unknown."""
    known = writing.known_fingerprint([os.path.realpath(path) for path in paths])
    size, count = (known.get(f"num_{what}") for what in ("examples", "files"))
    if not isinstance(size, int) or not isinstance(count, int) or not len(paths) <= count <= size:
        return {}
    if count == 1:
        return {paths[0]: size}
    sizes = shards.spread(size, count)
    found = {os.path.basename(path): path for path in paths}
    names = shards.shard_names(split, count)
    return {found[name]: n for name, n in zip(names, sizes, strict=True) if name in found}


def _cut(path, size, written):
    if written is None:
        return f"{path} is empty"
    return f"{path} holds {size} records, but {written} were written to it"


def _counts_by_file(paths, results):
    """Yields (path, {class: number of records}) for each file, as soon as it is read."""
    waiting = iter(paths)
    for path, group in itertools.groupby(results, key=lambda result: result[0]):
        for empty in itertools.takewhile(lambda other, path=path: other != path, waiting):
            yield empty, collections.Counter()
        yield path, collections.Counter(int(label) for _, (_, label) in group)
    for empty in waiting:
        yield empty, collections.Counter()


def _report_faults(records, report):
    for record in records[:_MOST_FAULTS_SHOWN]:
        rest = "; nothing after it can be found" if record.ends_file else ""
        report(f"  record {record.number} (counted from 0): {record.reason}{rest}")
    if len(records) > _MOST_FAULTS_SHOWN:
        report(f"  and {len(records) - _MOST_FAULTS_SHOWN} more")


def _refuse(records):
    """Raises the DataError of the first `CorruptRecord`, if any."""
    if not records:
        return
    error = records[0].error()
    if others := len(records) - 1:
        num_files = len({record.path for record in records})
        raise DataError(f"{error}; and {others} more, in {num_files} files in all, see above")
    raise error


def _lacking(dataset, split, size):
    published = dataset.splits[split]
    return "" if published in (None, size) else f" of the published {published}"


def _report_classes(dataset, found, report):
    width = max(len("class"), *map(len, dataset.labels)) + 5
    report("")
    report(f"{'class':{width}}" + "".join(f"  {split:>7}" for split in found))
    totals = [sum(counts.values(), collections.Counter()) for counts in found.values()]
    for number, label in enumerate(dataset.labels, dataset.label_offset):
        row = "".join(f"  {total[number]:7}" for total in totals)
        report(f"{f'{number:4} {label}':{width}}{row}")
    report("")
