"""Names and finds shards, the files of a split."""

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from slim_data.common.errors import DataError

_WORKER = re.compile(r"worker_(?P<id>\d+)_of_(?P<num>\d+)")
# All names of a conversion must fit into memory.
_SHARD = re.compile(r"(?P<split>.+)-(?P<index>\d{5,7})-of-(?P<count>\d{5,7})")


def shard_names(split: str, num_shards: int) -> list[str]:
    """Returns the file names of a sharded split: `train-00000-of-00004` and so on."""
    return [f"{split}-{i:05d}-of-{num_shards:05d}" for i in range(num_shards)]


def single_name(split: str, name: str) -> str:
    """Returns the file name of a split in one file: `train-mnist.tfrecord`."""
    return f"{split}-{name}.tfrecord"


_Item = TypeVar("_Item")


def spread(num_examples: int, num_shards: int) -> list[int]:
    """Returns the number of examples of each shard; sizes differ by at most one.

    Example:
        >>> spread(10, 4)
        [2, 3, 2, 3]
    """
    bounds = [num_examples * i // num_shards for i in range(num_shards + 1)]
    return [stop - start for start, stop in itertools.pairwise(bounds)]


def worker_name(num_workers: int, worker_id: int) -> str:
    """Returns the name of the folder for a worker's files: `worker_0_of_4`."""
    return f"worker_{worker_id}_of_{num_workers}"


def is_worker_folder(data_dir: str | os.PathLike) -> bool:
    """Returns True if a folder's name is a worker's."""
    return _worker_of(data_dir) is not None


def _worker_of(data_dir):
    """Returns (number of workers, worker's id) from a folder's name, or None."""
    match = _WORKER.fullmatch(os.path.basename(os.path.realpath(data_dir)))
    if match is None or int(match["id"]) >= int(match["num"]):
        return None
    return int(match["num"]), int(match["id"])


def first_and_last(paths: Sequence[str]) -> str:
    """Returns a range of file names for messages: `train-00000-of-00004 to ...`."""
    shown = [os.path.basename(path) for path in paths]
    return shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def worker_part(files: Sequence[_Item], num_workers: int, worker_id: int) -> Sequence[_Item]:
    """Returns the contiguous block of files for a worker; sizes differ by at most one.

    Example:
        >>> worker_part(["a", "b", "c", "d", "e"], 2, 0)
        ['a', 'b']
    """
    start = len(files) * worker_id // num_workers
    return files[start : len(files) * (worker_id + 1) // num_workers]


def find_candidates(data_dir: str | os.PathLike, split: str) -> list[str]:
    """Returns the sorted paths of files that are named like a split's, complete or not.

    Names are `<split>-00000-of-00004` or `<split>-<anything>.tfrecord`.
    """
    try:
        found = os.listdir(data_dir)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DataError(
            f"`data_dir` must be a folder that can be read. Received: data_dir={str(data_dir)!r} "
            f"({error.strerror})"
        ) from error
    return [os.path.join(data_dir, name) for name in sorted(found) if _set_of(name, split)]


def _set_of(name, split):
    """Returns a key that a conversion's files share, or None for other files."""
    match = _SHARD.fullmatch(name)
    if match and match["split"] == split:
        return int(match["count"])
    return name if name.startswith(f"{split}-") and name.endswith(".tfrecord") else None


def refuse_others(folder: str | os.PathLike, split: str, wanted: Iterable[str]) -> None:
    """Raises DataError if a folder holds files of a split that are not in `wanted`."""
    known = {os.path.basename(path) for path in wanted}
    found = [os.path.basename(path) for path in find_candidates(folder, split)]
    others = [name for name in found if name not in known]
    if others:
        raise DataError(
            f"{str(folder)!r} already holds {others[0]} of another conversion: "
            f"choose another folder or remove its {split} files"
        )


def find_shards(data_dir: str | os.PathLike, split: str) -> list[str]:
    """Returns the sorted paths of the files of a split, or [].

    A folder named `worker_1_of_4` may hold only that worker's part. DataError if a shard is
    missing, or the files belong to more than one conversion or worker.
    """
    paths = find_candidates(data_dir, split)
    if not paths:
        return []
    names = [os.path.basename(path) for path in paths]
    received = f"Received: data_dir={str(data_dir)!r}"
    first_of_set = {_set_of(name, split): name for name in reversed(names)}
    if len(first_of_set) > 1:
        shown = " and ".join(sorted(first_of_set.values())[:2])
        raise DataError(
            f"`data_dir` must hold the {split} files of one conversion only. "
            f"{received} with {shown}"
        )
    (count,) = first_of_set
    wanted = shard_names(split, count) if isinstance(count, int) else names
    share = f"all {len(wanted)}"
    worker = _worker_of(data_dir)
    if worker is not None and len(names) < len(wanted):
        wanted = worker_part(wanted, *worker)
        share = f"its {len(wanted)} of {count}"
    if foreign := [name for name in names if name not in wanted]:
        raise DataError(
            f"`data_dir` must hold {share} {split} files and no others. "
            f"{received} with {foreign[0]}"
        )
    if missing := [name for name in wanted if name not in names]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise DataError(
            f"`data_dir` must hold {share} {split} files. "
            f"{received} without {', '.join(missing[:3])}{more}"
        )
    return paths
