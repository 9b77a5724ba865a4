"""Reads untrusted text files."""

import os

from slim_data.common.errors import DataError, os_errors_of
from slim_data.files import opening

_BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: str | os.PathLike, argument: str | None = None) -> list[str]:
    """Returns the lines of a text file, without their ends.

    Args:
        argument: the argument that gave the path, for messages.
    """
    shown = path if argument is None else f"`{argument}` {path}"
    try:
        with os_errors_of(shown), open(path, encoding="utf-8", opener=opening.regular_file) as file:
            lines = [line.rstrip("\n") for line in file]
    except UnicodeDecodeError as error:
        raise DataError(f"{shown} must be a text file: {error.reason}") from None
    # A byte order mark would become part of the first name.
    if lines and lines[0].startswith(_BYTE_ORDER_MARK):
        raise DataError(
            f"{shown}, line 1: a text file must begin without a byte order mark. Save it as UTF-8 "
            "without one"
        )
    return lines
