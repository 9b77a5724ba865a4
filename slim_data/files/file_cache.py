"""What was found out about large files, cached from one process to the next.

Reading all of a large data set, or just the framing of it, takes minutes, and training should
begin at once. So figures of data sets larger than 1 GiB are kept in the user's cache folder
(`$XDG_CACHE_HOME` or `~/.cache`, in `slim_data/`), each file's with its size and time of last
change: of a file that was changed since nothing is cached. A cache that cannot be read or
written is as good as none.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from slim_data.common.errors import DataError
from slim_data.files import opening
from slim_data.files.atomic import write_lines

SMALLEST_SIZE = 2**30


def cached_values(
    kind: str, files: Sequence[str], compute: Callable[[list[str]], list[Any]]
) -> list[Any]:
    """Returns what `compute` finds out about each file, or what it found before.

    Args:
        kind: str, what is found out.
        files: paths.
        compute: function of a list of paths, that returns a list of values that JSON can hold.

    Raises:
        DataError: a file cannot be found.
    """
    stamps = [_stamp(path) for path in files]
    if sum(size for size, _ in stamps) <= SMALLEST_SIZE:
        return compute(list(files))
    cache = _path(kind, files)
    known = _read(cache)
    keys = [json.dumps([os.path.realpath(p), *s]) for p, s in zip(files, stamps, strict=True)]
    new = [path for path, key in zip(files, keys, strict=True) if key not in known]
    if new:
        found = dict(zip(new, compute(new), strict=True))
        known.update({k: found[p] for p, k in zip(files, keys, strict=True) if p in found})
        _write(cache, {key: known[key] for key in keys})
    return [known[key] for key in keys]


def _stamp(path):
    try:
        status = os.stat(path)
        opening.check_regular(path, status)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return status.st_size, status.st_mtime_ns


def _path(kind, files):
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    names = "\0".join([kind, *map(os.path.realpath, files)])
    digest = hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()
    return os.path.join(folder, "slim_data", f"{digest[:32]}.json")


def _read(path):
    try:
        with open(path, encoding="utf-8", opener=opening.regular_file) as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path, content):
    with contextlib.suppress(OSError, DataError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_lines(path, [json.dumps(content)])
