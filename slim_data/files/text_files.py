"""Text files that somebody else may have written."""

import os

from slim_data.common.errors import DataError
from slim_data.files import opening


def read_lines(path: str | os.PathLike, argument: str | None = None) -> list[str]:
    """Returns the lines of a text file, without their ends.

    Args:
        path: path of the file.
        argument: str, name of the argument that gave the path, for the message. Default: none did.

    Raises:
        DataError: the file cannot be read or is no text.
    """
    shown = path if argument is None else f"`{argument}` {path}"
    try:
        with open(path, encoding="utf-8", opener=opening.regular_file) as file:
            return [line.rstrip("\n") for line in file]
    except OSError as error:
        raise DataError(f"{shown}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{shown} must be a text file: {error.reason}") from None
