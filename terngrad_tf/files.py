"""Opening what other people's command lines and files name. Imports no TensorFlow."""

import contextlib
import errno
import os
import pathlib
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

PathLike = str | os.PathLike[str]

# Characters of a name that its temporary name keeps: file systems take 255 bytes.
_KEPT = 50


def open_regular(path: PathLike) -> BinaryIO:
    """Opens a file for reading, and nothing but a file: a pipe or device would wait for ever.

    Args:
        path: path of the file.

    Returns:
        A binary file object.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it is no regular file, or the path holds what no path can hold.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except UnicodeEncodeError as error:
        raise ValueError(f"{path!r} is not a path: it is no text in UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{path!r} is not a path: {error}") from error
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket, or a device that is not there
            raise
        raise ValueError(f"{path} must be a regular file") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} must be a regular file")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


@contextlib.contextmanager
def atomic_write(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Gives a new file beside `path` that takes its place once all is written.

    Its name is one that nobody can foresee, and no link is followed.

    Args:
        path: `pathlib.Path`; its folder exists.

    Yields:
        `pathlib.Path` of the new, empty file. Where the code inside fails, it is removed.

    Raises:
        OSError: the file cannot be written; it names `path` where the code inside names none.
    """
    beside = path.with_name(f".{path.name[:_KEPT]}.{secrets.token_hex(8)}")
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        yield beside
        os.replace(beside, path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        # NumPy tells neither file nor reason.
        if isinstance(error, OSError) and not error.filename:
            number = error.errno or errno.EIO
            raise OSError(number, error.strerror or str(error), str(path)) from error
        raise
