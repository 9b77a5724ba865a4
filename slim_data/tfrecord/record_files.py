"""Reads the framing of TFRecord files without TensorFlow.

A file is a sequence of records: length (uint64, little endian), masked CRC-32C of the length
(uint32), data, masked CRC-32C of the data (uint32).
"""

import concurrent.futures
import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from slim_data.common import progress
from slim_data.common.errors import DataError, os_errors_of
from slim_data.files import file_cache, opening
from slim_data.tfrecord import crc32c

HEADER_SIZE = 12
FOOTER_SIZE = 4

# Headers lie far apart: reading waits for the disk.
_NUM_THREADS = 16
_CHECKED_AT_ONCE = 2**26  # bytes


@dataclasses.dataclass(frozen=True)
class ScanResult:
    """Result of reading a file's framing.

    Args:
        num_records: before the first fault, or all.
        fault: the fault in record `num_records`, after which no record can be found; or None.
    """

    num_records: int
    fault: str | None


def scan_records(files: Sequence[str]) -> list[ScanResult]:
    """Returns the `ScanResult` of each file; caches large data sets' results, see `file_cache`."""

    def compute(paths):
        found = []
        shown = progress.no_bar()
        if total_size(paths) > file_cache.SMALLEST_SIZE:
            shown = progress.progress_bar("counting records", len(paths), "files")
        with concurrent.futures.ThreadPoolExecutor(_NUM_THREADS) as threads, shown as report:
            for scan in threads.map(_scan, paths):
                found.append(scan)
                report(len(found))
        return found

    found = file_cache.cached_values("framing", files, compute)
    return [ScanResult(*value) for value in found]


def count_examples(files: Sequence[str], up_to_faults: bool = False) -> int:
    """Returns the number of records in files, reading their framing only.

    Args:
        files: paths of TFRecord files.
        up_to_faults: whether to count damaged files up to their first fault.

    Raises:
        DataError: a file is empty or truncated, or a record's length does not match its checksum;
            names the file and the record.
    """
    scans = scan_records(files)
    for path, found in zip(files, scans, strict=True):
        if up_to_faults:
            continue
        if found.fault is not None:
            raise record_error(path, found.num_records, found.fault)
        if not found.num_records:
            raise DataError(f"{path} is empty: remove it and convert the data set again")
    return sum(found.num_records for found in scans)


def record_extents(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns (offsets, lengths), int64, of the data of a file's records, up to the first fault."""
    headers, _ = _headers(path)
    lengths = _table(headers)["length"][: _scan(path)[0]].astype(np.int64)
    ends = np.cumsum(HEADER_SIZE + lengths + FOOTER_SIZE)
    return ends - FOOTER_SIZE - lengths, lengths


def find_damaged_records(path: str) -> list[int]:
    """Returns the numbers of the records with a wrong checksum, ascending.

    Slower than TensorFlow's reading, which stops at the first.
    """
    found = []
    offsets, lengths = record_extents(path)
    if not len(offsets):
        return found  # an empty file cannot be mapped into memory
    data = np.memmap(path, np.uint8, "r")
    # As many records as fit into the memory limit, padded to the longest.
    step = max(1, _CHECKED_AT_ONCE // max(1, lengths.max(initial=0)))
    for first in range(0, len(offsets), step):
        chunk = slice(first, first + step)
        ends = offsets[chunk] + lengths[chunk]
        rows = np.zeros([len(ends), lengths[chunk].max(initial=0)], np.uint8)
        for row, offset, end in zip(rows, offsets[chunk], ends, strict=True):
            row[: end - offset] = data[offset:end]
        stored = data[ends[:, None] + np.arange(FOOTER_SIZE)].view("<u4")[:, 0]
        wrong = np.flatnonzero(crc32c.masked(rows, lengths[chunk]) != stored)
        found += (first + wrong).tolist()
    return found


def total_size(files: Sequence[str]) -> int:
    """Returns the size of files in bytes."""
    return sum(map(_size, files))


def _size(path):
    with os_errors_of(path):
        status = os.stat(path)
        # TensorFlow would block on a pipe without a writer.
        opening.check_regular(path, status)
    return status.st_size


def _headers(path):
    """Returns (headers of all records in one string, excess of the last record over the file)."""
    headers = bytearray()
    offset = 0
    with os_errors_of(path), open(path, "rb", buffering=0, opener=opening.regular_file) as file:
        number, size = file.fileno(), os.fstat(file.fileno()).st_size
        while offset + HEADER_SIZE <= size:
            header = os.pread(number, HEADER_SIZE, offset)
            headers += header
            offset += HEADER_SIZE + int.from_bytes(header[:8], "little") + FOOTER_SIZE
    return headers, offset - size


def _table(headers):
    return np.frombuffer(headers, np.dtype([("length", "<u8"), ("crc", "<u4")]))


def _scan(path):
    """Returns (number of records before the first fault, the fault or None)."""
    headers, excess = _headers(path)
    table = _table(headers)
    lengths = np.frombuffer(table["length"].tobytes(), np.uint8).reshape(-1, 8)
    # After a wrong length, later headers are misread: only the first mismatch is real.
    wrong = np.flatnonzero(crc32c.masked(lengths) != table["crc"])
    if len(wrong):
        return int(wrong[0]), "the length does not match its checksum"
    if excess:
        return len(table) - (1 if excess > 0 else 0), "the file is truncated here"
    return len(table), None


def record_error(path: str, number: int, reason: str) -> DataError:
    """Returns the DataError that names a record, counted from 0."""
    return DataError(f"{path}: record {number} (counted from 0): {reason}")
