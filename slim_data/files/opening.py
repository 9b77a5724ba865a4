"""Opening files that somebody else may have put there: nothing hangs, and no link is followed."""

import errno
import fcntl
import os
import stat
from typing import BinaryIO

from slim_data.common.errors import DataError


def regular_file(path: str, flags: int) -> int:
    """Opener for `open(path, opener=regular)` of what must be a regular file, to be read.

    A pipe would be waited for until somebody writes to it, a device read without end.

    Raises:
        OSError: there is no such file, or it is no regular one.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_regular(path: str | os.PathLike, status: os.stat_result) -> None:
    """Raises OSError unless an `os.stat_result` is that of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


def partial_file(path: str | os.PathLike) -> BinaryIO:
    """Returns a file, opened to append and read and locked, that becomes `path` once it is whole.

    It is `.<name>.partial` beside `path`. What an earlier process has left there is kept.

    Raises:
        DataError: there is a link or anything else that is no file of its own, through which
            another file would be overwritten; or another process is writing it.
        OSError: it cannot be made.
    """
    folder, name = os.path.split(os.fspath(path))
    beside = os.path.join(folder, f".{name}.partial")
    try:
        file = open(beside, "ab+", opener=_own)
    except _NotOwn as error:
        raise DataError(
            f"{beside} is {error} and not what an earlier run has left: remove it, and look who "
            "can write to that folder"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise DataError(f"{path}: another process is writing this file") from None
    return file


class _NotOwn(Exception):
    """Something is no regular file with one name."""


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
    raise _NotOwn("a hard link" if stat.S_ISREG(status.st_mode) else "no regular file")
