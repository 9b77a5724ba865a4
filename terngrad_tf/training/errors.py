"""Errors that programs report in one line."""

import contextlib
import errno
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any

from slim_data.common.errors import DISK_ERRORS
from terngrad_tf.common.arguments import shown


class UserError(ValueError):
    """A wrong argument, folder or file; the one-line message says what to change."""


def require(condition: Any, name: str, rule: str, value: object) -> None:
    """Like `terngrad_tf.common.arguments.check`, but raises UserError."""
    if not condition:
        raise UserError(f"`{name}` {rule}. Received: {name}={shown(value)}")


class DivergedError(RuntimeError):
    """A loss or weights became non-finite in training."""

    def __init__(self, what: str, step: int, checkpoint: str | None):
        kept = f"last good checkpoint: {checkpoint}" if checkpoint else "no checkpoint yet"
        super().__init__(
            f"Model diverged at step {step}: {what} is not finite ({kept}). "
            "A lower learning rate may help"
        )
        self.step = step
        self.checkpoint = checkpoint


# Of files that became unwritable.
_WRITE_ERRORS = (*DISK_ERRORS, errno.EROFS)


def write_failure(error: BaseException | None) -> str | None:
    """Returns one line on a file that could not be written, as on a full disk, or None."""
    found = _failed_write(error)
    if found is None:
        return None
    return f"{found.filename or 'a file'} cannot be written: {found.strerror}"


def _failed_write(error):
    """Returns the OSError behind an error if a file could not be written, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
            return error
        message = str(getattr(error, "message", ""))  # TensorFlow's errors have one
        for number in _WRITE_ERRORS:
            if (reason := os.strerror(number)) in message:
                # `{{function_node ...}} path; reason`, the former in errors of operations.
                place = message.partition(reason)[0].rpartition("\n")[2]
                path = re.sub(r"^\s*\{\{.*?\}\} *|[;: ]+$", "", place)
                return OSError(number, reason, path or None)
        error = error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def writing(name: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Names the user's path in errors of a context that writes to it, also beside it.

    Args:
        name: the argument that gives the path.

    Raises:
        UserError: the path cannot be written to.
        OSError: the disk is full or broken, or the file too large.
    """
    path = os.fspath(path)
    try:
        yield
    except Exception as error:
        disk = _failed_write(error)
        if disk is not None and disk.errno in DISK_ERRORS:
            raise OSError(disk.errno, disk.strerror, path) from error
        if not isinstance(error, OSError):
            raise
        raise UserError(
            f"`{name}` cannot be written. Received: {name}={path!r} ({error.strerror})"
        ) from error


@contextlib.contextmanager
def writing_into(
    name: str,
    folder: str | os.PathLike[str],
    kinds: type[OSError] | tuple[type[OSError], ...] = OSError,
) -> Iterator[None]:
    """Turns errors of some kinds, in a context that writes into the user's folder, into UserErrors.

    Args:
        name: the argument that gives the folder.
    """
    try:
        yield
    except kinds as error:
        raise UserError(
            f"`{name}` must be a folder that can be written to. "
            f"Received: {name}={str(folder)!r} ({error.strerror})"
        ) from error


def output_path(name: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path of a file or folder to write, checked before the work; makes its parent.

    Raises:
        UserError: the path cannot be written to.
        OSError: the disk is full.
    """
    output = pathlib.Path(path)
    with writing(name, output):
        if output.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        output.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=output.parent).close()
    return output


@contextlib.contextmanager
def as_user_error() -> Iterator[None]:
    """Turns a ValueError of the context, which checks users' values, into a UserError."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error
