"""Several splits, from anywhere, written as sets of shards that tell their end."""

import datetime
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from slim_data.common import progress
from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError
from slim_data.tfrecord import shards, writing


class SplitSource(NamedTuple):
    """Where the examples of a split come from, as `writing.write_shards` takes it."""

    generate: Callable[[int, int], Iterator[bytes]]
    num_examples: int
    fingerprint: dict[str, Any]


def write_splits(
    sources: Mapping[str, SplitSource],
    num_shards: Mapping[str, int],
    output_directory: str | os.PathLike,
    *,
    num_processes: int | None,
    report: Callable[[str], object],
) -> None:
    """Writes each split to `<split>-00000-of-00002` and so on.

    Args:
        sources: {split: its `SplitSource`}, first split first.
        num_shards: {split: number of its files}.
        output_directory: folder to write to; made if absent.
        num_processes: as for `writing.write_shards`.
        report: function of a line of text, called with what was done.

    Raises:
        DataError: a number is out of range, an image cannot be read, or a file cannot be written.
    """
    for split, source in sources.items():
        _check(split, num_shards[split], source.num_examples)
    for split, source in sources.items():
        names = shards.shard_names(split, num_shards[split])
        paths = [os.path.join(output_directory, name) for name in names]
        try:
            os.makedirs(output_directory, exist_ok=True)
            with progress.progress_bar(f"Writing {split}", source.num_examples) as advance:
                writing.write_shards(
                    source.generate,
                    paths,
                    source.num_examples,
                    fingerprint=source.fingerprint,
                    num_processes=num_processes,
                    progress=advance,
                )
        except OSError as error:
            raise DataError(
                f"`output_directory` must be a folder that can be written to. "
                f"Received: output_directory={str(output_directory)!r} ({error})"
            ) from error
        shown = shards.first_and_last(paths)
        report(f"Wrote {source.num_examples} {split} images to {shown}")
        report(
            f"{datetime.datetime.now()}: Finished writing all {source.num_examples} images in "
            "data set."
        )


def _check(split, num_shards, num_examples):
    check_at_least(1, **{f"{split}_shards": num_shards})
    if num_shards > num_examples:
        raise DataError(
            f"`{split}_shards` must be at most the number of images, {num_examples}. "
            f"Received: {split}_shards={num_shards}"
        )
