"""The framing of TFRecord files, read without TensorFlow.

A file is a sequence of records: length (uint64, little endian), masked CRC-32C of the length
(uint32), data, masked CRC-32C of the data (uint32).
"""

import mmap
import os

import numpy as np

from slim_data import crc32c
from slim_data.errors import DataError

HEADER_SIZE = 12
FOOTER_SIZE = 4


def count_examples(files):
    """Returns the number of records in files, reading their framing only.

    Args:
        files: paths of TFRecord files.

    Raises:
        DataError: a file is truncated, or a record's length does not match its checksum; names
            the file and the record.
    """
    return sum(_count(path) for path in files)


def total_size(files):
    """Returns the size of files in bytes.

    Raises:
        DataError: a file cannot be found or read, such as a link to nowhere.
    """
    try:
        return sum(os.path.getsize(path) for path in files)
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error


def _headers(path, size):
    """Returns the headers of a file's records in one string, and the end of the last record."""
    headers = bytearray()
    offset = 0
    if size == 0:
        return headers, offset  # which cannot be mapped
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            while offset + HEADER_SIZE <= size:
                headers += data[offset : offset + HEADER_SIZE]
                offset += HEADER_SIZE + int.from_bytes(headers[-12:-4], "little") + FOOTER_SIZE
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    return headers, offset


def _count(path):
    size = total_size([path])
    headers, offset = _headers(path, size)
    table = np.frombuffer(headers, np.dtype([("length", "V8"), ("crc", "<u4")]))
    lengths = np.frombuffer(table["length"].tobytes(), np.uint8).reshape(-1, 8)
    # After a wrong length the walk went astray: of all mismatches only the first is real.
    wrong = np.flatnonzero(crc32c.masked(lengths) != table["crc"])
    if len(wrong):
        raise record_error(path, int(wrong[0]), "the length does not match its checksum")
    if offset != size:
        whole = len(table) - (1 if offset > size else 0)
        raise record_error(path, whole, "the file is truncated here")
    return len(table)


def record_error(path, number, reason):
    """Returns the DataError that names a record, counted from 0."""
    return DataError(f"{path}: record {number} (counted from 0): {reason}")
