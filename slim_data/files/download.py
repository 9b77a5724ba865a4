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
            _Download(file, partial, progress, patience).complete(pauses)
            os.fsync(partial.fileno())
            os.replace(partial.name, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


class _Download:
    """The download of a file into an open partial file."""

    def __init__(self, file, partial, progress, patience):
        self._file = file
        self._partial = partial
        self._progress = progress
        self._patience = patience

    def complete(self, pauses):
        """Repeats attempts until the file is complete."""
        urls, remaining, best = list(self._file.urls), list(pauses), self._size()
        while True:
            url = urls.pop(0)
            try:
                return self._attempt(url)
            except Failed as failure:
                if not failure.is_final:
                    urls.append(url)
                if self._size() >= best + _MIN_PROGRESS:
                    best, remaining = self._size(), list(pauses)
                if not urls or not remaining:
                    name = self._partial.name
                    if not self._size():
                        os.remove(name)
                    raise DataError(
                        f"{self._file.name} cannot be downloaded from {url}: {failure}. Run again "
                        f"to resume, or put the file into {os.path.dirname(name)}"
                    ) from None
                time.sleep(remaining.pop(0))

    def _attempt(self, url):
        """Fetches the missing bytes and compares the checksum; raises `Failed`."""
        size = self._reported_size(url) if self._file.size is None else self._file.size
        start = self._size()
        if start > size:
            start = self._truncate()
        is_resumed = start > 0
        if start < size:
            is_resumed = self._receive(url, start, size)
        self._partial.flush()
        if self._file.sha256 is None:
            return
        found = checksums.sha256_of_open(self._partial)
        if found != self._file.sha256:
            self._truncate()
            # The earlier bytes may belong to another file.
            raise Failed(
                f"its SHA-256 must be {self._file.sha256}. Received: {found}",
                is_final=not is_resumed,
            )

    def _receive(self, url, start, size):
        """Appends the server's bytes; returns True if they continued the existing ones."""
        try:
            with self._opened(url, start) as (read, response):
                if start and not _continues(response, start):
                    start = self._truncate()
                self._copy(read, start, size)
        except Failed as failure:
            if failure.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                self._truncate()  # the server's file has changed
                failure.is_final = False
            raise
        return start > 0

    @contextlib.contextmanager
    def _opened(self, url, start):
        """Yields a server's response, from byte `start` if possible; raises `Failed`."""
        headers = {"User-Agent": "slim_data"}
        if start:
            headers["Range"] = f"bytes={start}-"
        authorization = self._file.authorization
        with http_get.open_url(url, headers, authorization, self._patience) as (read, response):
            if authorization and response.headers.get_content_type() == "text/html":
                reason = "the server sent a web page instead, as it does to unknown accounts"
                raise Failed(reason, is_final=True)
            yield read, response

    def _reported_size(self, url):
        """Returns the file's size as the server reports it."""
        with self._opened(url, 0) as (_, response):
            size = response.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,19}", size):
            raise Failed("the server does not report its size", is_final=True)
        return int(size)

    def _copy(self, read, done, size):
        """Appends the bytes from `done` to `size`."""
        while done <= size:
            try:
                piece = read(CHUNK)
            except Failed as failure:
                raise Failed(
                    f"the connection broke after {done} of {size} bytes: {failure}"
                ) from None
            if not piece:
                break
            self._partial.write(piece)
            done += len(piece)
            self._progress(done)
        self._partial.flush()
        if done < size:
            raise Failed(f"the connection broke after {done} of {size} bytes")
        if done > size:
            self._truncate()
            raise Failed(f"the file is longer than its {size} bytes", is_final=True)

    def _size(self):
        self._partial.flush()
        return os.fstat(self._partial.fileno()).st_size

    def _truncate(self):
        self._partial.truncate(0)
        return 0


def _continues(response, start):
    """Returns True if a response starts after the first `start` bytes."""
    place = re.match(r"bytes ([0-9]{1,19})-", response.headers.get("Content-Range", ""))
    return response.status == http.client.PARTIAL_CONTENT and place and int(place[1]) == start
