"""Reads untrusted .tar and .tar.gz archives without extracting files.

Only requested members are read: links, devices and names such as `../x` have no effect. Sizes in
headers are not trusted: each read and each archive has a limit.
"""

import contextlib
import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

from slim_data.common.errors import DataError
from slim_data.files import opening

MAX_SIZE = 2**30
# Per entry, extended headers included; names take a few hundred bytes.
MAX_HEADERS_SIZE = 2**16
MAX_FILES = 2**17
_MAX_DIGITS = 64
_DIGITS = re.compile(rb"[0-9]+")


class Archive(tarfile.TarFile):
    """An archive read through a `_Part`."""

    fileobj: Any
    members: list[tarfile.TarInfo]


@contextlib.contextmanager
def open_archive(path: str | os.PathLike, max_size: int = MAX_SIZE) -> Iterator[Archive]:
    """Yields an `Archive` of a .tar.gz file; errors in the context become one line.

    Args:
        max_size: maximum size in bytes after unpacking.
    """
    with _unpacked(path) as stream, _archive(path, stream, 0, max_size) as archive:
        yield archive


@contextlib.contextmanager
def open_plain_archive(path: str | os.PathLike) -> Iterator[Archive]:
    """Yields an `Archive` of a .tar file of any size; see `open_archive`."""
    with _errors_named(path), open(path, "rb", opener=opening.regular_file) as stream:
        with _archive(path, stream, 0, 2**62) as archive:
            yield archive


@contextlib.contextmanager
def open_nested_archive(archive: Archive, member: tarfile.TarInfo) -> Iterator[Archive]:
    """Yields an `Archive` of a .tar file inside an archive of `open_plain_archive`."""
    _check_regular(archive, member)
    name = f"{archive.name}: {member.name}"
    outer = archive.fileobj
    begin = outer.begin + member.offset_data
    with _errors_named(name):
        with _archive(name, outer.stream, begin, member.size, is_cut=True) as inner:
            yield inner


def check_whole(path: str | os.PathLike, max_size: int = MAX_SIZE) -> None:
    """Reads a .tar.gz file to its end, which makes gzip compare its checksum.

    Args:
        max_size: maximum size in bytes after unpacking.
    """
    with _unpacked(path) as stream:
        part = _Part(path, stream, 0, max_size)
        position = 0
        while piece := part.content(position, 2**20):
            position += len(piece)


def list_members(archive: Archive) -> dict[str, tarfile.TarInfo]:
    """Returns {name: entry} of an archive, at most `MAX_FILES`, in order."""
    found = {}
    for member in iterate_members(archive):
        found[member.name] = member
        if len(found) > MAX_FILES:
            raise DataError(f"{archive.name}: the archive holds more than {MAX_FILES} files")
    return found


def iterate_members(archive: Archive) -> Iterator[tarfile.TarInfo]:
    """Yields the entries of an archive, without keeping them."""
    end = -1
    while (member := _next(archive)) is not None:
        archive.members.clear()
        # Before the fix of CVE-2025-8194, Python loops forever.
        if member.offset <= end or member.size < 0:
            raise DataError(f"{archive.name}: the headers of the archive do not follow each other")
        end = member.offset
        yield member
    _check_end(archive)


def _check_end(archive):
    """Refuses what follows if `tarfile` took a damaged header, or zeros over one, for the end.

    As for other programs, bytes that are no header may follow the end.
    """
    content, position = archive.fileobj.content, archive.offset
    is_damaged = any(content(position, tarfile.BLOCKSIZE))
    while not is_damaged and (piece := content(position, 2**20)):
        blocks = range(0, len(piece), tarfile.BLOCKSIZE)
        is_damaged = any(_is_header(piece[at : at + tarfile.BLOCKSIZE]) for at in blocks)
        position += len(piece)
    if is_damaged:
        raise DataError(
            f"{archive.name}: the file is damaged: no valid header at byte {archive.offset}"
        )


def _is_header(block):
    try:
        tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _next(archive):
    archive.fileobj.begin_headers()
    with _damage_named(archive.name):
        return archive.next()


def read_member(archive: Archive, member: tarfile.TarInfo, max_size: int) -> bytes:
    """Returns the bytes of one file of an archive.

    Raises:
        DataError: the file is not regular, is empty, truncated or larger than `max_size` bytes.
    """
    _check_regular(archive, member)
    if not 0 < member.size <= max_size:
        raise DataError(
            f"{archive.name}: the size of {member.name} must be 1 to {max_size} bytes. "
            f"Received: {member.size}"
        )
    data = archive.fileobj.content(member.offset_data, member.size)
    if len(data) < member.size:
        raise DataError(f"{archive.name}: the file is truncated")
    return data


def _check_regular(archive, member):
    if not member.isreg() or member.issparse():
        raise DataError(f"{archive.name}: {member.name} is not a regular file")


class _Part:
    """A part of a stream, as a file from which `tarfile` reads headers only.

    Args:
        stream: seekable.
        begin: position of the part in the stream.
        max_size: maximum size of the part in bytes.
        is_cut: whether the part ends there; otherwise, more bytes are an error.
    """

    def __init__(self, name, stream, begin, max_size, is_cut=False):
        self.stream = stream
        self.begin = begin
        self._name = name
        self._max_size = max_size
        self._is_cut = is_cut
        self._position = 0
        self._headers_size = 0

    def begin_headers(self):
        """Starts counting the size of the next entry's headers."""
        self._headers_size = 0

    def read(self, size):
        self._headers_size += size
        if not 0 <= size <= self._headers_size <= MAX_HEADERS_SIZE:
            raise DataError(f"{self._name}: a header of the archive declares {size} bytes or more")
        data = self.content(self._position, size)
        self._position += len(data)
        # Before the fix of CVE-2024-6232, Python takes time quadratic in the number of digits.
        if any(run.end() - run.start() > _MAX_DIGITS for run in _DIGITS.finditer(data)):
            raise DataError(
                f"{self._name}: a header of the archive holds a number of more than {_MAX_DIGITS} "
                "digits"
            )
        return data

    def content(self, position, size):
        """Returns `size` bytes from `position`, fewer at the end of the stream."""
        self._check(position + size)
        size = max(0, min(size, self._max_size - position))
        if self.stream.tell() != self.begin + position:
            self.stream.seek(self.begin + position)
        return self.stream.read(size)

    def seek(self, position):
        self._check(position)
        self._position = position

    def tell(self):
        return self._position

    def seekable(self):
        return True

    def _check(self, end):
        if end > self._max_size and not self._is_cut:
            raise DataError(f"{self._name}: the archive holds more than {self._max_size} bytes")


@contextlib.contextmanager
def _archive(name, *part, **options):
    with _damage_named(name):
        # `fileobj` is typed as writable, which reading does not need.
        stream: Any = _Part(name, *part, **options)
        archive = Archive.open(name, "r:", fileobj=stream)
    with archive:
        yield archive


@contextlib.contextmanager
def _unpacked(path):
    with _errors_named(path), open(path, "rb", opener=opening.regular_file) as file:
        with gzip.open(file) as stream:
            yield stream


@contextlib.contextmanager
def _damage_named(name):
    try:
        yield
    except (DataError, EOFError, OSError, zlib.error):
        raise
    # tarfile raises many kinds of errors: LookupError, RecursionError, ...
    except Exception as error:
        reason = (
            error if isinstance(error, tarfile.TarError) else f"{type(error).__name__}: {error}"
        )
        raise DataError(f"{name}: the file is not a valid archive ({reason})") from None


@contextlib.contextmanager
def _errors_named(path):
    try:
        yield
    except EOFError:
        raise DataError(f"{path}: the file is truncated") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: the file is not a valid archive ({error})") from None
    except OSError as error:
        # The context may write what it reads.
        raise DataError(f"{error.filename or path}: {error.strerror or error}") from error
