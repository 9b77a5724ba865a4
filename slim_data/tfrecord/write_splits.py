"""Writes several splits as sets of shards, with reports."""

import datetime
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from slim_data.common import progress
from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataErrors, write_errors_of
from slim_data.tfrecord import shards, writing


class SplitSource(NamedTuple):
    """Source of a split's examples, for `writing.write_shards`.

    Args:
        may_change: see `writing.discard_unfinished`; empty: nothing is discarded.
    """

    generate: Callable[[int, int], Iterator[bytes]]
    num_examples: int
    fingerprint: dict[str, Any]
    may_change: tuple[str, ...] = ()


def write_splits(
    sources: Mapping[str, SplitSource],
    num_shards: Mapping[str, int],
    output_directory: str | os.PathLike,
    *,
    num_processes: int | None,
    report: Callable[[str], object],
) -> None:
    """Writes each split to `<split>-00000-of-00002` and so on.

    `DataErrors` are collected over all splits. A split with fewer images gets one file per image.

    Args:
        sources: {split: `SplitSource`}, in the order of writing.
        num_shards: {split: number of files}, also of splits without a source: the folder must hold
            no files of these, whose images may be in another split.
    """
    check_at_least(1, **{f"{split}_shards": num_shards[split] for split in sources})
    for split in num_shards.keys() - sources.keys():
        shards.refuse_others(output_directory, split, ())
    faults = []
    for split, source in sources.items():
        try:
            with write_errors_of("output_directory", output_directory):
                _write_split(
                    split, source, num_shards[split], output_directory, num_processes, report
                )
        except DataErrors as error:
            faults += error.faults
    if not faults:
        return
    if len(faults) > 1:
        for fault in faults:
            report(fault)
    raise DataErrors(faults)


def _write_split(split, source, num_shards, folder, num_processes, report):
    number = min(num_shards, source.num_examples)
    if number < num_shards:
        # Files without examples would leave a process without work.
        report(f"{split}: {number} files instead of {num_shards}, one per image")
    paths = [os.path.join(folder, name) for name in shards.shard_names(split, number)]
    os.makedirs(folder, exist_ok=True)
    discarded = source.may_change and writing.discard_unfinished(
        paths, source.num_examples, fingerprint=source.fingerprint, may_change=source.may_change
    )
    if discarded:
        report(f"{split}: removed {discarded} files, unfinished and of other images than these")
    with progress.progress_bar(f"Writing {split}", source.num_examples) as advance:
        num_written = writing.write_shards(
            source.generate,
            paths,
            source.num_examples,
            fingerprint=source.fingerprint,
            num_processes=num_processes,
            progress=advance,
        )
    names = shards.first_and_last(paths)
    if not num_written:
        report(f"All {source.num_examples} {split} images are in {names} already")
        return
    report(f"Wrote {num_written} {split} images to {names}")
    report(
        f"{datetime.datetime.now()}: Finished writing all {source.num_examples} images in data set."
    )
