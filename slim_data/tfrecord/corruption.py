"""Finds unreadable records.

TensorFlow's errors name neither file nor record. Adding these to each record would slow every step;
instead, the files are read again after an error.
"""

from __future__ import annotations

import bisect
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

    def fail(record):
        raise record.error()

    report = report or fail
    scans = record_files.scan_records(files)
    # Starting a pipeline takes longer than reading a small file.
    for group in _up_to_faults(files, scans):
        paths = [path for path, _ in group]
        yield from _checked(paths, [f.num_records for _, f in group], check, report)
        path, last = group[-1]
        if last.fault is not None:
            report(CorruptRecord(path, last.num_records, last.fault, ends_file=True))


def _up_to_faults(files, scans):
    """Yields runs of (path, scan), in which only the last file may have a fault."""
    group = []
    for path, found in zip(files, scans, strict=True):
        group.append((path, found))
        if found.fault is not None:
            yield group
            group = []
    if group:
        yield group


def _checked(paths, sizes, check, report):
    """Yields results as `read_checked`, for the first `sizes[i]` records of each file."""
    ends = list(itertools.accumulate(sizes, initial=0))
    first = 0
    while first < len(paths):
        # TensorFlow accepts a file that ends inside a record's header as whole.
        records = tf.data.TFRecordDataset(paths[first:]).take(ends[-1] - ends[first])
        number = ends[first]
        try:
            # Results, errors included, come in the order of the records.
            for result in _mapped(records, check):
                yield paths[bisect.bisect_right(ends, number) - 1], result
                number += 1
            return
        except _errors() as error:
            reason = _reason(error)
        i = bisect.bisect_right(ends, number) - 1
        report(CorruptRecord(paths[i], number - ends[i], reason, ends_file=False))
        # TensorFlow skips the rest of a file after a wrong checksum.
        yield from _rest(paths[i], number - ends[i] + 1, sizes[i], check, report)
        first = i + 1


def _rest(path, begin, end, check, report):
    """Yields results as `read_checked`, for records `begin` to `end - 1` of a file."""
    damaged = set(record_files.find_damaged_records(path))
    offsets, lengths = record_files.record_extents(path)
    whole = [number for number in range(begin, end) if number not in damaged]
    results = iter(_mapped(in_memory(path, offsets[whole], lengths[whole]), check))
    for number in range(begin, end):
        if number in damaged:
            report(CorruptRecord(path, number, _CHECKSUM, ends_file=False))
            continue
        try:
            yield path, next(results)
        except _errors() as error:
            report(CorruptRecord(path, number, _reason(error), ends_file=False))


def _errors():
    """Returns the types of errors that damaged records cause."""
    return tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError


def _mapped(records, check):
    if check is None:
        return records
    return records.map(check, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


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
