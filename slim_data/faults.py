"""Finding the record that an error comes from.

Reading checks every checksum, key, image and label, but TensorFlow's errors tell neither file nor
record. Carrying that along with each record would cost time on every step; instead the files are
read once more, in order, when an error has occurred.
"""

import contextlib
import functools
import re

from slim_data import datasets, decoding, shards
from slim_data.errors import DataError
from slim_data.lazy import tf


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
    return sum(_verify_file(path, check) for path in files)


def _verify_file(path, check):
    # TensorFlow takes a file that ends inside a record's header for whole: ask the framing first.
    shards.count_examples([path])
    records = tf.data.TFRecordDataset(path)
    if check is not None:
        records = records.map(check, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    number = 0
    try:
        # Results, errors included, come in the order of the records.
        for _ in records:
            number += 1
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        raise shards.record_error(path, number, _reason(error)) from error
    return number


def _check(serialized, dataset):
    return decoding.decode(serialized, dataset)[1]


def _reason(error):
    """Returns TensorFlow's message without the names of ops and devices, on one line."""
    if isinstance(error, tf.errors.DataLossError):
        return "the data does not match its checksum"
    message = re.sub(
        r"\{\{function_node.*?\}\}|\[\[\{\{node.*|\[Op:.*", "", error.message, flags=re.S
    )
    return " ".join(message.split())


def explain(error, files, name=None):
    """Returns the DataError that says which record caused `error`, None if no record did.

    Args:
        error: exception raised while iterating over a dataset made by `load`.
        files: paths of the files it was made of.
        name: name of the data set.
    """
    is_data_loss = isinstance(error, tf.errors.DataLossError)
    is_record = isinstance(error, tf.errors.InvalidArgumentError) and decoding.SCOPE in str(error)
    if not (is_data_loss or is_record):
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
    # Not only tf.errors: the name would load TensorFlow before it is needed.
    try:
        yield
    except Exception as error:
        explanation = explain(error, shards.find_files(name, data_dir, split), name)
        if explanation is None:
            raise
        raise explanation from error
