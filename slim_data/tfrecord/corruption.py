"""Finds unreadable records.

TensorFlow's errors name neither file nor record. Adding these to each record would slow every step;
instead, the files are read again after an error.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from slim_data.common.errors import DataError
from slim_data.common.lazy import tf
from slim_data.tfrecord import decoding, record_files

_CHECKSUM = "the data does not match its checksum"
_NO_EXAMPLE = "Could not parse example input"
_LONGEST_REASON = 200


@dataclasses.dataclass(frozen=True)
class CorruptRecord:
    """An unreadable record.

    Args:
        path: path of the file.
        number: number of the record in the file, from 0.
        reason: description of the fault.
        ends_file: whether the file's later records cannot be found, because the record's length
            is damaged or the file is truncated.
    """

    path: str
    number: int
    reason: str
    ends_file: bool

    def error(self) -> DataError:
        """Returns the DataError that names the record."""
        return record_files.record_error(self.path, self.number, self.reason)


def read_checked(
    files: Sequence[str],
    check: Callable[[tf.Tensor], Any] | None = None,
    report: Callable[[CorruptRecord], object] | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yields (path, result of `check`) for each record, in order.

    Args:
        check: function of a serialized record, for `tf.data.Dataset.map`. TensorFlow may skip
            computations that do not affect its result. Default: the record.
        report: function of a `CorruptRecord`, called for each instead of raising.

    Raises:
        DataError: without `report`, the first record that is faulty. Or a file cannot be read.
    """
    report = report or _raise
    scans = record_files.scan_records(files)
    attempts = None
    for i, (path, scan) in enumerate(zip(files, scans, strict=True)):
        if attempts is None:
            # One pipeline for many files: its start takes longer than reading a small file.
            attempts = _attempts(_records(files[i:], scans[i:]), check)
        for number, (result, fault) in enumerate(itertools.islice(attempts, scan.num_records)):
            if fault is None:
                yield path, result
                continue
            report(CorruptRecord(path, number, fault, ends_file=False))
            # TensorFlow skips the rest of a file after a wrong checksum.
            yield from _read_rest(path, range(number + 1, scan.num_records), check, report)
            attempts = None
            break
        if scan.fault is not None:
            report(CorruptRecord(path, scan.num_records, scan.fault, ends_file=True))


def _raise(record):
    raise record.error()


def _records(files, scans):
    """Returns a dataset of the records before the faults in the files' framing."""
    # TensorFlow accepts a file that ends inside a record's header as whole.
    sizes = tf.constant([scan.num_records for scan in scans], tf.int64)
    sized = tf.data.Dataset.from_tensor_slices((list(files), sizes))
    return sized.flat_map(lambda path, size: tf.data.TFRecordDataset(path).take(size))


def _read_rest(path, numbers, check, report):
    """Yields results as `read_checked`, for some records of a file, read into memory."""
    damaged = set(record_files.find_damaged_records(path))
    offsets, lengths = record_files.record_extents(path)
    whole = [number for number in numbers if number not in damaged]
    attempts = _attempts(in_memory(path, offsets[whole], lengths[whole]), check)
    for number in numbers:
        result, fault = (None, _CHECKSUM) if number in damaged else next(attempts)
        if fault is None:
            yield path, result
        else:
            report(CorruptRecord(path, number, fault, ends_file=False))


def _attempts(records, check):
    """Yields (result of `check`, None) or (None, fault) for each record, in order."""
    if check is not None:
        records = records.map(check, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    results = iter(records)
    while True:
        try:
            yield next(results), None
        except StopIteration:
            return
        except (
            tf.errors.DataLossError,
            tf.errors.InvalidArgumentError,
            UnicodeDecodeError,
        ) as error:
            yield None, _reason(error)


def in_memory(path: tf.Tensor, offsets: tf.Tensor, lengths: tf.Tensor) -> tf.data.Dataset:
    """Returns a dataset of chosen records of a file, read into memory.

    Args:
        offsets, lengths: places of the records' data in the file, int64 [n].
    """
    content = tf.io.read_file(path)
    extents = tf.data.Dataset.from_tensor_slices((offsets, lengths))
    return extents.map(lambda offset, length: tf.strings.substr(content, offset, length))


def _message(error):
    """Returns the text of a dataset's error."""
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow's error becomes this one if it quotes a record that is not text.
        return error.object.decode(errors="replace")
    return str(error)


def is_of_record(error: Exception) -> bool:
    """Returns True if a record caused a dataset's error."""
    if isinstance(error, (tf.errors.InvalidArgumentError, UnicodeDecodeError)):
        # The message quotes a record that is not a tf.Example, up to its first zero byte.
        return decoding.SCOPE in _message(error) or _NO_EXAMPLE in _message(error)
    return isinstance(error, tf.errors.DataLossError)


def _reason(error):
    """Returns TensorFlow's reason on one line, without names of ops and iterators."""
    if isinstance(error, tf.errors.DataLossError):
        return _CHECKSUM
    text = " ".join(_message(error).split())
    text = re.sub(r"\{\{function_node.*?\}\} | ?\[\[\{\{.*| ?\[Op:.*", "", text)
    text = re.sub(r"^Error in user-defined function passed to \S+ .*? iterator: \S+: ", "", text)
    text = re.sub(rf"^({_NO_EXAMPLE}), value: .*", r"\1", text)
    text = re.sub(r"^assertion failed: \[(.*?)\] \[(.*?)\]", r"\1 \2", text)
    return text[:_LONGEST_REASON]
