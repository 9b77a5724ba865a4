"""Opens files named by untrusted command lines and files. Imports no TensorFlow."""

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

PathLike = str | os.PathLike[str]

# Temporary names hold part of the name: file systems allow 255 bytes.
_KEPT = 50


def open_regular(path: PathLike) -> BinaryIO:
    """Opens a regular file to read bytes; pipes and devices could block forever.

    Raises:
        ValueError: the file is not regular, or the path is invalid.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except UnicodeEncodeError as error:
        raise ValueError(f"{path!r} is not a path: it is not text in UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{path!r} is not a path: {error}") from error
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: a socket, or a device that does not exist
            raise
        raise ValueError(f"{path} must be a regular file") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} must be a regular file")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def sync(path: PathLike) -> None:
    """Returns when a file's content, or a folder's list of files, would survive a power cut.

    Without effect on file systems that cannot say so, such as some for folders.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_write(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a new file with a random name, which replaces `path` unless the context fails.

    Links are not followed. An OSError names `path` unless it names another file.
    """
    beside = path.with_name(f".{path.name[:_KEPT]}.{secrets.token_hex(8)}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        yield beside
        os.replace(beside, path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        # NumPy's errors have neither file nor reason.
        if isinstance(error, OSError) and not error.filename:
            number = error.errno or errno.EIO
            raise OSError(number, error.strerror or str(error), str(path)) from error
        raise
