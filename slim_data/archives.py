"""Reading .tar and .tar.gz archives that may come from anywhere: nothing is extracted.

Only what is asked for is read, so that links, devices and names such as `../x` have no effect.
Sizes that a header declares are not believed: no single read and no archive exceeds a limit.
"""

import contextlib
import gzip
import tarfile
import zlib

from slim_data.errors import DataError

MAX_SIZE = 2**30
MAX_READ = 2**26


@contextlib.contextmanager
def opened(path, max_size=MAX_SIZE):
    """Yields a `tarfile.TarFile` to read from; what goes wrong meanwhile becomes one line.

    Args:
        path: a .tar.gz file.
        max_size: largest size in bytes that it may have when unpacked.

    Raises:
        DataError: the file cannot be read, is damaged or is too large.
    """
    with _errors_named(path), gzip.open(path, "rb") as stream:
        with tarfile.open(path, "r:", fileobj=_Bounded(path, stream, max_size)) as archive:
            yield archive


@contextlib.contextmanager
def opened_plain(path):
    """Yields a `tarfile.TarFile` of a .tar file, of any size, as `opened` does."""
    with _errors_named(path), open(path, "rb") as stream:
        bounded = _Bounded(path, stream, 2**62)
        with tarfile.open(path, "r:", fileobj=bounded) as archive:
            yield archive


@contextlib.contextmanager
def nested(archive, member):
    """Yields a `tarfile.TarFile` of a .tar file that lies in another archive.

    Args:
        archive: what `opened_plain` yields.
        member: `tarfile.TarInfo` of the file.

    Raises:
        DataError: it is no regular file, or damaged.
    """
    _check_regular(archive, member)
    name = f"{archive.name}: {member.name}"
    with _errors_named(name), archive.extractfile(member) as stream:
        with tarfile.open(name, "r:", fileobj=stream) as inner:
            yield inner


def check_whole(path, max_size=MAX_SIZE):
    """Reads an archive to its end, which makes gzip compare its checksum.

    Args:
        path: a .tar.gz file.
        max_size: largest size in bytes that it may have when unpacked.

    Raises:
        DataError: the file cannot be read, is damaged or is too large.
    """
    with _errors_named(path), gzip.open(path, "rb") as stream:
        bounded = _Bounded(path, stream, max_size)
        while bounded.read(2**20):
            pass


def files(archive):
    """Returns {name: `tarfile.TarInfo`} of what an archive lists, in its order.

    Args:
        archive: what `opened` yields.

    Raises:
        DataError: the headers do not follow each other.
    """
    return {member.name: member for member in members(archive)}


def members(archive):
    """Yields the entries that `files` returns one by one, holding none of them."""
    end = -1
    while (member := archive.next()) is not None:
        archive.members.clear()  # half a million of them would be kept
        # Python before its fix of CVE-2025-8194 would go round in circles.
        if member.offset <= end or member.size < 0:
            raise DataError(f"{archive.name}: the headers of the archive do not follow each other")
        end = member.offset
        yield member


def read(archive, member, max_size):
    """Returns the bytes of one file of an archive.

    Args:
        archive: what `opened` yields.
        member: `tarfile.TarInfo` of the file.
        max_size: largest size in bytes that the file may have.

    Raises:
        DataError: it is no regular file, is empty, larger than `max_size` or not whole.
    """
    _check_regular(archive, member)
    if not 0 < member.size <= max_size:
        raise DataError(
            f"{archive.name}: the size of {member.name} must be 1 to {max_size} bytes. "
            f"Received: {member.size}"
        )
    data = archive.extractfile(member).read()
    if len(data) < member.size:
        raise DataError(f"{archive.name}: the file is truncated")
    return data


def _check_regular(archive, member):
    if not member.isreg() or member.issparse():
        raise DataError(f"{archive.name}: {member.name} is no regular file")


class _Bounded:
    """The part of a stream that lies within the limits, as a file that can be read and sought."""

    def __init__(self, path, stream, max_size):
        self._path = path
        self._stream = stream
        self._max_size = max_size

    def read(self, size):
        if not 0 <= size <= MAX_READ:
            raise DataError(f"{self._path}: a header of the archive declares {size} bytes")
        if self._stream.tell() + size > self._max_size:
            raise DataError(f"{self._path}: the archive holds more than {self._max_size} bytes")
        return self._stream.read(size)

    def seek(self, position):
        if position > self._max_size:
            raise DataError(f"{self._path}: the archive holds more than {self._max_size} bytes")
        return self._stream.seek(position)

    def seekable(self):
        return True

    def tell(self):
        return self._stream.tell()


@contextlib.contextmanager
def _errors_named(path):
    try:
        yield
    except DataError:
        raise
    except EOFError:
        raise DataError(f"{path}: the file is truncated") from None
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, ValueError, OverflowError) as error:
        raise DataError(f"{path}: the file is no valid archive ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
