"""SHA-256 of files."""

import hashlib
import os

from slim_data.common.errors import DataError
from slim_data.files import opening


def sha256(path):
    """Returns the SHA-256 of a file in hexadecimal digits.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with open(path, "rb", opener=opening.regular) as file:
            return sha256_of_open(file)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def sha256_of_open(file):
    """Returns the SHA-256 of an open binary file, from its beginning, in hexadecimal digits."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(2**20):
        digest.update(piece)
    return digest.hexdigest()


def identity(paths):
    """Returns {name of a file: its SHA-256}, which tells whether files are the same as before."""
    return {os.path.basename(path): sha256(path) for path in paths}
