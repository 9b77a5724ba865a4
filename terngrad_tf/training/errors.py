"""Errors that programs report in one line."""

import contextlib
import errno
import os
import re
from collections.abc import Iterator


class UserError(ValueError):
    """A wrong argument, folder or file; the one-line message says what to change."""


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


# Errors of files that became unwritable.
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def write_failure(error: BaseException | None) -> str | None:
    """Returns one line on a file that could not be written, as on a full disk, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
            return f"{error.filename or 'a file'} cannot be written: {error.strerror}"
        message = str(getattr(error, "message", ""))  # TensorFlow's errors have one
        for number in _WRITE_ERRORS:
            if (reason := os.strerror(number)) in message:
                path = re.search(rf"(/[^\n]*?)[;:]* *{re.escape(reason)}", message)
                return f"{path.group(1) if path else 'a file'} cannot be written: {reason}"
        error = error.__cause__ or error.__context__
    return None


@contextlib.contextmanager
def as_user_error() -> Iterator[None]:
    """Turns a ValueError of the context, which checks users' values, into a UserError."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error
