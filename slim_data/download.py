"""Downloading official files: checked against a known checksum, resumed where they broke off."""

import dataclasses
import fcntl
import http.client
import os
import re
import time
import urllib.error
import urllib.request

from slim_data import checksums
from slim_data.errors import DataError

TIMEOUT_SECONDS = 30
PAUSES_SECONDS = (1, 2, 4, 8)
CHUNK = 2**18


@dataclasses.dataclass(frozen=True)
class File:
    """One official file.

    Args:
        name: its name.
        urls: where it can be had, the preferred address first.
        size: its size in bytes.
        sha256: its SHA-256 in hexadecimal digits.
    """

    name: str
    urls: tuple[str, ...]
    size: int
    sha256: str


def missing(files, folder):
    """Returns those of some `File`s that are not in a folder."""
    return [file for file in files if not os.path.isfile(os.path.join(folder, file.name))]


def fetch(file, folder, *, progress=None, pauses=PAUSES_SECONDS):
    """Downloads a file to a folder; it appears there when its size and checksum are right.

    Until then what has arrived is in `.<name>.partial` beside it. The next attempt, in this call
    or in a later one, goes on from there if the server can.

    Args:
        file: the `File`.
        folder: path of the folder; made if absent.
        progress: function of the number of bytes that are there, called after each piece.
        pauses: seconds to wait after each failed attempt; the attempt after the last one is the
            last. An attempt that brought new bytes starts the list again. Addresses take turns.

    Returns:
        The path of the file. One that is there already is left as it is.

    Raises:
        DataError: no address gives the file, or it cannot be written.

    Example:
        >>> fetch(slim_data.mnist.DOWNLOADS[1], "/data/mnist")
        '/data/mnist/train-labels-idx1-ubyte.gz'
    """
    path = os.path.join(folder, file.name)
    if os.path.isfile(path):
        return path
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f".{file.name}.partial"), "ab+") as partial:
            _lock(partial, path)
            _complete(partial, file, progress or (lambda done: None), pauses)
            os.fsync(partial.fileno())
            os.replace(partial.name, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


class _Failed(Exception):
    """An attempt failed; `is_final` where the same address would fail again."""

    def __init__(self, reason, is_final=False):
        super().__init__(reason)
        self.is_final = is_final


def _lock(partial, path):
    try:
        fcntl.flock(partial, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DataError(f"{path}: another process is downloading this file") from None


def _complete(partial, file, progress, pauses):
    """Repeats attempts until the partial file is the whole file."""
    urls = list(file.urls)
    best = _size(partial)
    remaining = list(pauses)
    while True:
        url = urls.pop(0)
        try:
            return _attempt(partial, file, url, progress)
        except _Failed as failure:
            if not failure.is_final:
                urls.append(url)
            if _size(partial) > best:
                best, remaining = _size(partial), list(pauses)
            if not urls or not remaining:
                if not _size(partial):
                    os.remove(partial.name)
                raise DataError(
                    f"{file.name} cannot be downloaded from {url}: {failure}. Run again to go on "
                    f"where it stopped, or put the file into {os.path.dirname(partial.name)}"
                ) from None
            time.sleep(remaining.pop(0))


def _attempt(partial, file, url, progress):
    """Fetches what is lacking and compares the checksum; raises `_Failed`."""
    start = _size(partial)
    if start > file.size:
        start = _truncate(partial)
    is_resumed = start > 0
    if start < file.size:
        is_resumed = _receive(partial, file, url, start, progress)
    partial.flush()
    found = checksums.sha256(partial.name)
    if found != file.sha256:
        _truncate(partial)
        # A resumed file may be made of two that differ: its beginning may be at fault.
        raise _Failed(
            f"its SHA-256 must be {file.sha256}. Received: {found}", is_final=not is_resumed
        )


def _receive(partial, file, url, start, progress):
    """Appends what a server sends; returns whether that followed on what was there before."""
    request = urllib.request.Request(url, headers={"User-Agent": "slim_data"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            _truncate(partial)  # the file there is another one than before
        is_final = 400 <= error.code < 500 and error.code not in (408, 416, 429)
        raise _Failed(f"HTTP status {error.code} {error.reason}", is_final) from None
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(str(getattr(error, "reason", error))) from None
    with response:
        if start and not _continues(response, start):
            start = _truncate(partial)
        _copy(response, partial, file, start, progress)
    return start > 0


def _copy(response, partial, file, size, progress):
    while size <= file.size:
        try:
            piece = response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _Failed(f"the connection broke after {size} of {file.size} bytes") from error
        if not piece:
            break
        partial.write(piece)
        size += len(piece)
        progress(size)
    partial.flush()
    if size < file.size:
        raise _Failed(f"the connection broke after {size} of {file.size} bytes")
    if size > file.size:
        _truncate(partial)
        raise _Failed(f"the file is longer than its {file.size} bytes", is_final=True)


def _continues(response, start):
    """Whether a response holds what follows the first `start` bytes."""
    place = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return response.status == http.client.PARTIAL_CONTENT and place and int(place[1]) == start


def _size(partial):
    partial.flush()
    return os.fstat(partial.fileno()).st_size


def _truncate(partial):
    partial.truncate(0)
    return 0
