"""Finding the records that cannot be read.

Reading checks every checksum, key, image and label, but TensorFlow's errors tell neither file nor
record. Carrying that along with each record would cost time on every step; instead the files are
read once more, in order, when an error has occurred.
"""

import bisect
import contextlib
import dataclasses
import functools
import itertools
import re

from slim_data import datasets, decoding, framing, remembered, shards
from slim_data.errors import DataError
from slim_data.lazy import tf

_CHECKSUM = "the data does not match its checksum"
_NO_EXAMPLE = "Could not parse example input"
_LONGEST_REASON = 200


@dataclasses.dataclass(frozen=True)
class CorruptRecord:
    """A record that cannot be read.

    Args:
        path: path of its file.
        number: its number in the file, from 0.
        reason: what is wrong with it.
        ends_file: whether nothing after it in the file can be found: its length is damaged, or
            the file is truncated.
    """

    path: str
    number: int
    reason: str
    ends_file: bool

    def error(self):
        """Returns the DataError that names the record."""
        return framing.record_error(self.path, self.number, self.reason)


def verify(files, name=None):
    """Reads records from first to last and checks them.

    Args:
        files: paths of TFRecord files.
        name: name of the data set: checks keys, images and labels too. None checks only the
            framing and its checksums.

    Returns:
        The number of records.

    Raises:
        DataError: names the first file and record (counted from 0) at fault, and the reason.
    """
    check = None if name is None else functools.partial(_check, dataset=datasets.info(name))
    return sum(1 for _ in checked(files, check))


def corrupt_records(name, data_dir, split):
    """Returns the records that `load` leaves out with `skip_corrupt_records`, in order.

    Reads and decodes all records. Of data sets larger than 1 GiB the result is remembered, see
    `remembered`.

    Args:
        name: name of the data set.
        data_dir: folder that `load` reads.
        split: split that `load` reads.

    Returns:
        List of `CorruptRecord`.

    Raises:
        DataError: files are missing or cannot be read.
    """
    check = functools.partial(_check, dataset=datasets.info(name))

    def compute(paths):
        found = {path: [] for path in paths}
        for _ in checked(paths, check, lambda record: found[record.path].append(record)):
            pass
        return [[[r.number, r.reason, r.ends_file] for r in records] for records in found.values()]

    files = shards.find_files(name, data_dir, split)
    found = remembered.values(f"corrupt records of {name}", files, compute)
    pairs = zip(files, found, strict=True)
    return [CorruptRecord(path, *record) for path, records in pairs for record in records]


def checked(files, check=None, report=None):
    """Yields (path, what `check` makes of a record) for each record, in order.

    Args:
        files: paths of TFRecord files.
        check: function of a serialized record, for `tf.data.Dataset.map`. What it does not return
            TensorFlow may leave out. Without it, the records themselves are yielded.
        report: function of a `CorruptRecord`, called with each in order, which is left out.

    Raises:
        DataError: names the first record at fault (counted from 0), and the reason; only without
            `report`. A file cannot be read.
    """

    def fail(record):
        raise record.error()

    report = report or fail
    framings = framing.scan(files)
    # One pipeline serves many files: starting one takes longer than reading a small file.
    for group in _up_to_faults(files, framings):
        paths = [path for path, _ in group]
        yield from _checked(paths, [f.num_records for _, f in group], check, report)
        path, last = group[-1]
        if last.fault is not None:
            report(CorruptRecord(path, last.num_records, last.fault, ends_file=True))


def _up_to_faults(files, framings):
    """Yields runs of (path, framing), of which only the last of each run has a fault."""
    group = []
    for path, found in zip(files, framings, strict=True):
        group.append((path, found))
        if found.fault is not None:
            yield group
            group = []
    if group:
        yield group


def _checked(paths, sizes, check, report):
    """Yields what `checked` does, of the first `sizes[i]` records of each file."""
    ends = list(itertools.accumulate(sizes, initial=0))
    first = 0
    while first < len(paths):
        # TensorFlow takes a file that ends inside a record's header for whole.
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
        # Which TensorFlow would leave out when it has met a wrong checksum.
        yield from _rest(paths[i], number - ends[i] + 1, sizes[i], check, report)
        first = i + 1


def _rest(path, begin, end, check, report):
    """Yields what `checked` does, of the records numbered `begin` to `end - 1` of a file."""
    damaged = set(framing.damaged(path))
    offsets, lengths = framing.extents(path)
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
    """Returns the types of the errors that a damaged record causes."""
    return tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError


def _mapped(records, check):
    if check is None:
        return records
    return records.map(check, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def in_memory(path, offsets, lengths):
    """Returns chosen records of a file, which is read as a whole, as a dataset.

    Args:
        path: scalar string tensor.
        offsets, lengths: int64 tensors of shape [n], where each record's data lies in the file.
    """
    content = tf.io.read_file(path)
    extents = tf.data.Dataset.from_tensor_slices((offsets, lengths))
    return extents.map(lambda offset, length: tf.strings.substr(content, offset, length))


def _check(serialized, dataset):
    # Returned because TensorFlow leaves out what nobody asks for, damaged image or not.
    return decoding.decode(serialized, dataset)


def _message(error):
    """Returns the text of an error that iterating over a dataset raised."""
    if isinstance(error, UnicodeDecodeError):
        # What TensorFlow's own error becomes when it quotes a record that is no text.
        return error.object.decode(errors="replace")
    return str(error)


def _is_of_record(message):
    # The message quotes a record that is no tf.Example, and ends where that holds a zero byte.
    return decoding.SCOPE in message or _NO_EXAMPLE in message


def _reason(error):
    """Returns what TensorFlow found wrong, on one line, without names of ops and iterators."""
    if isinstance(error, tf.errors.DataLossError):
        return _CHECKSUM
    text = " ".join(_message(error).split())
    text = re.sub(r"\{\{function_node.*?\}\} | ?\[\[\{\{.*| ?\[Op:.*", "", text)
    text = re.sub(r"^Error in user-defined function passed to \S+ .*? iterator: \S+: ", "", text)
    text = re.sub(rf"^({_NO_EXAMPLE}), value: .*", r"\1", text)
    text = re.sub(r"^assertion failed: \[(.*?)\] \[(.*?)\]", r"\1 \2", text)
    return text[:_LONGEST_REASON]


def explain(error, files, name=None):
    """Returns the DataError that says which record caused `error`, None if no record did.

    Args:
        error: exception raised while iterating over a dataset made by `load`.
        files: paths of the files it was made of.
        name: name of the data set.
    """
    is_record = isinstance(error, (tf.errors.InvalidArgumentError, UnicodeDecodeError))
    if not (
        isinstance(error, tf.errors.DataLossError) or (is_record and _is_of_record(_message(error)))
    ):
        return None
    try:
        verify(files, name)
    except DataError as found:
        return found
    return None


@contextlib.contextmanager
def explained(name, data_dir, split):
    """Turns an error that a damaged record causes inside the block into one that names the record.

    Args:
        name: name of the data set.
        data_dir: folder that `load` reads.
        split: split that `load` reads.

    Raises:
        DataError: a record is damaged; names the file, the record and the reason. Other errors
            pass unchanged.

    Example:
        >>> with slim_data.explained("mnist", data_dir, "train"):
        ...     model.fit(slim_data.load("mnist", data_dir, "train", 64, 28, training=True))
    """
    try:
        yield
    except Exception as error:
        explanation = explain(error, shards.find_files(name, data_dir, split), name)
        if explanation is None:
            raise
        raise explanation from error
