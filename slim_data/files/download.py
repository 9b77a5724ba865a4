"""Downloads official files, with checksums, and resumes interrupted downloads."""

import contextlib
import dataclasses
import http.client
import os
import re
import time
from collections.abc import Callable, Sequence

from slim_data.common.errors import DataError
from slim_data.common.progress import ignore
from slim_data.files import checksums, http_get, opening
from slim_data.files.http_get import Failed

PAUSES_SECONDS = (1, 2, 4, 8)
CHUNK = 2**18
# Fewer bytes count as no progress.
_MIN_PROGRESS = 2**16


@dataclasses.dataclass(frozen=True)
class File:
    """One official file.

    Args:
        urls: addresses, in order of preference.
        size: size in bytes; None: as the server reports.
        sha256: SHA-256 in hexadecimal digits; None: unknown.
        authorization: HTTP Authorization header, sent to the servers of `urls` only; "": none.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None
    sha256: str | None
    authorization: str = dataclasses.field(default="", repr=False)


def fetch_file(
    file: File,
    folder: str | os.PathLike,
    *,
    progress: Callable[[int], object] = ignore,
    pauses: Sequence[float] = PAUSES_SECONDS,
    patience: float = http_get.PATIENCE_SECONDS,
) -> str:
    """Downloads a file to a folder, where it appears once size and checksum are right.

    Until then, `.<name>.partial` holds the received bytes. The next attempt or call resumes if the
    server can. An existing file is kept.

    Args:
        progress: function of the number of bytes present.
        pauses: seconds to wait after each failed attempt. Attempts that receive 64 KiB restart the
            list. Addresses take turns.
        patience: see `http_get.open_url`.

    Example:
        >>> fetch_file(mnist.Mnist.downloads[1], "/data/mnist")
        '/data/mnist/train-labels-idx1-ubyte.gz'
    """
    path = os.path.join(folder, file.name)
    if os.path.isfile(path):
        return path
    try:
        os.makedirs(folder, exist_ok=True)
        with opening.partial_file(path) as partial:
            _complete(partial, file, progress, pauses, patience)
            os.fsync(partial.fileno())
            os.replace(partial.name, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def _complete(partial, file, progress, pauses, patience):
    """Repeats attempts until the file is complete."""
    urls = list(file.urls)
    best = _size(partial)
    remaining = list(pauses)
    while True:
        url = urls.pop(0)
        try:
            return _attempt(partial, file, url, progress, patience)
        except Failed as failure:
            if not failure.is_final:
                urls.append(url)
            if _size(partial) >= best + _MIN_PROGRESS:
                best, remaining = _size(partial), list(pauses)
            if not urls or not remaining:
                if not _size(partial):
                    os.remove(partial.name)
                raise DataError(
                    f"{file.name} cannot be downloaded from {url}: {failure}. Run again to resume, "
                    f"or put the file into {os.path.dirname(partial.name)}"
                ) from None
            time.sleep(remaining.pop(0))


def _attempt(partial, file, url, progress, patience):
    """Fetches the missing bytes and compares the checksum; raises `Failed`."""
    if file.size is None:
        file = dataclasses.replace(file, size=_reported_size(file, url, patience))
    start = _size(partial)
    if start > file.size:
        start = _truncate(partial)
    is_resumed = start > 0
    if start < file.size:
        is_resumed = _receive(partial, file, url, start, progress, patience)
    partial.flush()
    if file.sha256 is None:
        return
    found = checksums.sha256_of_open(partial)
    if found != file.sha256:
        _truncate(partial)
        # The earlier bytes may belong to another file.
        raise Failed(
            f"its SHA-256 must be {file.sha256}. Received: {found}", is_final=not is_resumed
        )


def _receive(partial, file, url, start, progress, patience):
    """Appends the server's bytes; returns True if they continued the existing ones."""
    try:
        with _opened(file, url, start, patience) as (read, response):
            if start and not _continues(response, start):
                start = _truncate(partial)
            _copy(read, partial, file, start, progress)
    except Failed as failure:
        if failure.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            _truncate(partial)  # the server's file has changed
            failure.is_final = False
        raise
    return start > 0


@contextlib.contextmanager
def _opened(file, url, start, patience):
    """Yields a server's response, from byte `start` if possible; raises `Failed`."""
    headers = {"User-Agent": "slim_data"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with http_get.open_url(url, headers, file.authorization, patience) as (read, response):
        if file.authorization and response.headers.get_content_type() == "text/html":
            reason = "the server sent a web page instead, as it does to unknown accounts"
            raise Failed(reason, is_final=True)
        yield read, response


def _reported_size(file, url, patience):
    """Returns a file's size as the server reports it."""
    with _opened(file, url, 0, patience) as (_, response):
        size = response.headers.get("Content-Length", "")
    if not re.fullmatch("[0-9]{1,19}", size):
        raise Failed("the server does not report its size", is_final=True)
    return int(size)


def _copy(read, partial, file, size, progress):
    while size <= file.size:
        try:
            piece = read(CHUNK)
        except Failed as failure:
            raise Failed(
                f"the connection broke after {size} of {file.size} bytes: {failure}"
            ) from None
        if not piece:
            break
        partial.write(piece)
        size += len(piece)
        progress(size)
    partial.flush()
    if size < file.size:
        raise Failed(f"the connection broke after {size} of {file.size} bytes")
    if size > file.size:
        _truncate(partial)
        raise Failed(f"the file is longer than its {file.size} bytes", is_final=True)


def _continues(response, start):
    """Returns True if a response starts after the first `start` bytes."""
    place = re.match(r"bytes ([0-9]{1,19})-", response.headers.get("Content-Range", ""))
    return response.status == http.client.PARTIAL_CONTENT and place and int(place[1]) == start


def _size(partial):
    partial.flush()
    return os.fstat(partial.fileno()).st_size


def _truncate(partial):
    partial.truncate(0)
    return 0
