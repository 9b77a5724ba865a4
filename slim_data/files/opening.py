"""Opens files in shared folders without hanging and without following links."""

import errno
import fcntl
import os
import stat
from typing import BinaryIO

from slim_data.common.errors import DataError


def regular_file(path: str, flags: int) -> int:
    """Opener for `open(path, opener=regular_file)`, which accepts regular files only.

    Opening a pipe would block until a writer comes; a device could be read forever.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(path: str | os.PathLike, status: os.stat_result) -> None:
    """Raises OSError unless an `os.stat_result` describes a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


def partial_file(path: str | os.PathLike) -> BinaryIO:
    """Returns a locked file, open for appending and reading, that is to become `path`.

    The file is `.<name>.partial` beside `path` and keeps content of an earlier process.

    Raises:
        DataError: the name is no regular file, so writing could overwrite another file; or another
            process is writing it.
    """
    folder, name = os.path.split(os.fspath(path))
    beside = os.path.join(folder, f".{name}.partial")
    try:
        file = open(beside, "ab+", opener=_own)
    except _NotOwn as error:
        raise DataError(
            f"{beside} is {error} and not a file of an earlier run: remove it, and check who can "
            "write to that folder"
        ) from None
    try:
        lock(file.fileno())
    except BlockingIOError:
        file.close()
        raise DataError(f"{path}: another process is writing this file") from None
    return file


def lock(descriptor: int) -> None:
    """Locks an open file or folder until it is closed; BlockingIOError if another process has it.

    Without effect on file systems without locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass


class _NotOwn(Exception):
    """The file is not a regular file with a single name."""


def _own(path, flags):
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _NotOwn("a link") from None
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise _NotOwn("a hard link" if stat.S_ISREG(status.st_mode) else "not a regular file")
