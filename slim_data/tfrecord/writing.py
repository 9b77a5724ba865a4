"""Writes the shards of a split, restartable and independent of the number of processes."""

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slim_data.common import processes
from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError, DataErrors
from slim_data.common.lazy import tf
from slim_data.common.progress import ignore
from slim_data.files import opening
from slim_data.files.atomic import atomic_write, write_lines
from slim_data.tfrecord import record_files, shards

# Starting a process takes as long as writing this many photos.
EXAMPLES_PER_PROCESS = 2000
_MOST_FILES = 10**6  # of a split


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file and the numbers of its examples, `start` to `stop - 1`."""

    path: str
    start: int
    stop: int


def write_shards(
    generate: Callable[[int, int], Iterator[bytes]],
    paths: Sequence[str],
    num_examples: int,
    *,
    fingerprint: Mapping[str, Any],
    num_processes: int | None = None,
    progress: Callable[[int], object] = ignore,
) -> int:
    """Spreads examples evenly over files, in order; each file appears when complete.

    Keeps finished files of an interrupted run of the same conversion. A hidden file beside them
    identifies the conversion; a folder with files of another one is refused.

    Args:
        generate: function of (start, stop) that yields the serialized examples start to stop - 1.
            Picklable: a module-level function, or a `functools.partial` of one. Programs must guard
            their main part by `if __name__ == "__main__":`.
        paths: files in one existing folder, in order.
        fingerprint: JSON-compatible dictionary of everything that the files' content depends on
            (source, sizes, options).
        num_processes: maximum number of processes; None: one per core. Few examples use fewer.
        progress: function of the number of examples written so far.

    Returns:
        The number of examples that this call wrote.

    Raises:
        DataError: the folder holds files of another conversion, the source holds more or fewer
            examples than stated, or a process was killed. Each file is then whole or absent.
        DataErrors: `generate` raised them; all faults of all files together.
        OSError: a file cannot be written.

    Example:
        >>> generate = functools.partial(Digits().generate_examples, "train")
        >>> write_shards(generate, ["/data/train-00000-of-00001"], 1437, fingerprint={"version": 1})
    """
    if num_processes is not None:
        check_at_least(1, num_processes=num_processes)
    _claim(paths, _whole_fingerprint(paths, num_examples, fingerprint))
    stops = list(itertools.accumulate(shards.spread(num_examples, len(paths))))
    every = [Shard(*s) for s in zip(paths, [0, *stops[:-1]], stops, strict=True)]
    missing = [shard for shard in every if not _is_whole(shard)]
    num_missing = sum(shard.stop - shard.start for shard in missing)
    written = num_examples - num_missing

    def advance(count):
        nonlocal written
        written += count
        progress(written)

    advance(0)
    most = num_processes or processes.num_cores()
    num_parts = max(1, min(most, len(missing), num_missing // EXAMPLES_PER_PROCESS))
    parts = [shards.worker_part(missing, num_parts, i) for i in range(num_parts)]
    if num_parts == 1:
        _write_part(generate, missing, advance)
    else:
        processes.run_processes(_write_part, [(generate, part) for part in parts], advance)
    return num_missing


def discard_unfinished(
    paths: Sequence[str],
    num_examples: int,
    *,
    fingerprint: Mapping[str, Any],
    may_change: Sequence[str],
) -> int:
    """Removes the files of an unfinished conversion whose source has changed; returns their number.

    Args:
        paths, num_examples, fingerprint: arguments of the next call of `write_shards`.
        may_change: keys of the fingerprint that describe the source's content. If other keys differ
            too, nothing is removed.
    """
    folder, split = _place(paths)
    known = known_fingerprint(paths)
    new = _whole_fingerprint(paths, num_examples, fingerprint)
    found = shards.find_candidates(folder, split)
    count = known.get("num_files")
    is_own = isinstance(count, int) and set(map(os.path.basename, found)) < set(
        shards.shard_names(split, min(count, _MOST_FILES))
    )
    different = {key for key in known.keys() | new.keys() if known.get(key) != new.get(key)}
    if not is_own or not different.intersection(may_change):
        return 0
    if not different <= {*may_change, "num_files", "num_examples"}:
        return 0
    for path in found:
        os.remove(path)
    return len(found)


def _whole_fingerprint(paths, num_examples, fingerprint):
    found = {**fingerprint, "num_files": len(paths), "num_examples": num_examples}
    return json.loads(json.dumps(found))


def _place(paths):
    """Returns (folder, split) of files."""
    folder, name = os.path.split(os.path.abspath(paths[0]))
    return folder, name.partition("-")[0]


def _claim(paths, fingerprint):
    """Claims the folder for this conversion, or raises DataError if another one owns it."""
    folder, split = _place(paths)
    shards.refuse_others(folder, split, paths)
    if any(os.path.lexists(path) for path in paths):
        known = known_fingerprint(paths)
        if known != fingerprint:
            raise DataError(
                f"{folder} already holds {split} files of another conversion "
                f"({_difference(known, fingerprint)}): choose another folder or remove its {split} "
                "files"
            )
    else:
        write_lines(_record(paths), [json.dumps(fingerprint, indent=1, sort_keys=True)])


def _record(paths):
    folder, split = _place(paths)
    return os.path.join(folder, f".{split}.conversion.json")


def known_fingerprint(paths: Sequence[str]) -> dict[str, Any]:
    """Returns the fingerprint from `write_shards` of these paths, or {} if unknown."""
    path = _record(paths)
    try:
        with open(path, encoding="utf-8", opener=opening.regular_file) as file:
            known = json.load(file)
    except FileNotFoundError:
        known = {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error})") from None
    return known if isinstance(known, dict) else {}


def _difference(known, fingerprint):
    if not known:
        return "their source is not recorded"
    keys = sorted(known.keys() | fingerprint.keys())
    key = next(key for key in keys if known.get(key) != fingerprint.get(key))
    return f"{key}: {known.get(key)!r}, now {fingerprint.get(key)!r}"


def _is_whole(shard):
    if not os.path.isfile(shard.path):
        return False
    try:
        found = record_files.count_examples([shard.path])
    except DataError:
        return False
    if found != shard.stop - shard.start:
        raise DataError(
            f"{shard.path} already holds {found} examples and not the "
            f"{shard.stop - shard.start} of this conversion: remove it or choose another folder"
        )
    return True


def _write_part(generate, part, advance):
    """Writes some of the shards; calls `advance` for each example."""
    faults = []
    for run in _runs(part):
        try:
            _write_run(generate, run, advance)
        except DataErrors as error:
            faults += error.faults
    if faults:
        raise DataErrors(faults)


def _write_run(generate, run, advance):
    """Writes consecutive shards."""
    start, stop = run[0].start, run[-1].stop
    with contextlib.closing(generate(start, stop)) as records:
        for shard in run:
            chunk = itertools.islice(records, shard.stop - shard.start)
            if shard is run[-1]:
                chunk = itertools.chain(chunk, _nothing_left(records, stop))
            with atomic_write(shard.path) as partial:
                _write_file(partial, chunk, shard, advance)


def _runs(part):
    """Yields lists of consecutive shards."""
    run = []
    for shard in part:
        if run and shard.start != run[-1].stop:
            yield run
            run = []
        run.append(shard)
    if run:
        yield run


def _nothing_left(records, stop):
    # A source may detect damage only at its end: exhaust it before the last rename.
    for _ in records:
        raise DataError(f"The source holds more than the {stop} examples that it stated")
    yield from ()


def _write_file(path, records, shard, advance):
    num_bytes = count = 0
    with _disk_errors():
        writer = tf.io.TFRecordWriter(path)
    try:
        for record in records:  # errors of the source are none of the disk
            with _disk_errors():
                writer.write(record)
            num_bytes += record_files.HEADER_SIZE + len(record) + record_files.FOOTER_SIZE
            count += 1
            advance(1)
    finally:
        with _disk_errors():
            writer.close()
    if count < shard.stop - shard.start:
        raise DataError(
            f"The source ends after {shard.start + count} examples, fewer than it stated"
        )
    if os.path.getsize(path) != num_bytes:
        raise OSError(f"{os.path.getsize(path)} of {num_bytes} bytes were written to {path}")


@contextlib.contextmanager
def _disk_errors():
    """Turns TensorFlow's errors of a file into OSError."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(error.message) from error
