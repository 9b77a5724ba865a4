"""SHA-256 of files."""

import hashlib
import os
from typing import BinaryIO

from slim_data.common.errors import os_errors_of
from slim_data.files import opening


def sha256(path: str | os.PathLike) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits."""
    with os_errors_of(path), open(path, "rb", opener=opening.regular_file) as file:
        return sha256_of_open(file)


def sha256_of_open(file: BinaryIO) -> str:
    """Returns the SHA-256 of a whole open binary file in hexadecimal digits."""
    file.seek(0)
    digest = hashlib.sha256()
    while piece := file.read(2**20):
        digest.update(piece)
    return digest.hexdigest()
