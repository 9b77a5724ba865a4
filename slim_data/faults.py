"""Finding the record that an error comes from.

Reading checks every checksum, key, image and label, but TensorFlow's errors tell neither file nor
record. Carrying that along with each record would cost time on every step; instead the files are
read once more, in order, when an error has occurred.
"""

import contextlib
import functools
import re

from slim_data import datasets, decoding, framing, shards
from slim_data.errors import DataError
from slim_data.lazy import tf

_LONGEST_REASON = 200


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
    return sum(1 for path in files for _ in checked(path, check))


def checked(path, check=None):
    """Yields what `check` makes of each record of a file, in order; the record itself without.

    Args:
        path: path of a TFRecord file.
        check: function of a serialized record, for `tf.data.Dataset.map`. What it does not return
            TensorFlow may leave out.

    Raises:
        DataError: names the first record at fault (counted from 0), and the reason.
    """
    # TensorFlow takes a file that ends inside a record's header for whole: ask the framing first.
    framing.count_examples([path])
    records = tf.data.TFRecordDataset(path)
    if check is not None:
        records = records.map(check, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    number = 0
    try:
        # Results, errors included, come in the order of the records.
        for result in records:
            yield result
            number += 1
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        raise framing.record_error(path, number, _reason(error)) from error


def _check(serialized, dataset):
    # Returned because TensorFlow leaves out what nobody asks for, damaged image or not.
    return decoding.decode(serialized, dataset)


def _message(error):
    """Returns the text of an error that iterating over a dataset raised."""
    if isinstance(error, UnicodeDecodeError):
        # What TensorFlow's own error becomes when it quotes a record that is no text.
        return error.object.decode(errors="replace")
    return str(error)


def _reason(error):
    """Returns what TensorFlow found wrong, on one line, without names of ops and iterators."""
    if isinstance(error, tf.errors.DataLossError):
        return "the data does not match its checksum"
    text = " ".join(_message(error).split())
    text = re.sub(r"\{\{function_node.*?\}\} | ?\[\[\{\{node.*| ?\[Op:.*", "", text)
    text = re.sub(r"^Error in user-defined function passed to \S+ .*? iterator: \S+: ", "", text)
    text = re.sub(r"^(Could not parse example input), value: .*", r"\1", text)
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
        isinstance(error, tf.errors.DataLossError)
        or (is_record and decoding.SCOPE in _message(error))
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
