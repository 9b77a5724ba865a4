"""Caches results about large files across processes.

Reading a large data set, or just its framing, takes minutes. Results for more than 1 GiB are
therefore kept in `$XDG_CACHE_HOME` or `~/.cache`, in `slim_data/`, with each file's size and
modification time. An unreadable or unwritable cache counts as empty.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from slim_data.common.errors import DataError, os_errors_of
from slim_data.files import opening
from slim_data.files.atomic import write_lines

SMALLEST_SIZE = 2**30


def cached_values(
    kind: str, files: Sequence[str], compute: Callable[[list[str]], list[Any]]
) -> list[Any]:
    """Returns `compute`'s JSON-compatible results for files, from the cache if possible."""
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
    with os_errors_of(path):
        status = os.stat(path)
        opening.check_regular(path, status)
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
