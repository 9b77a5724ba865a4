"""What training and evaluation need to know of a data set."""

import contextlib
import dataclasses

import tensorflow as tf

import slim_data


@dataclasses.dataclass(frozen=True)
class Subset:
    """One part of a data set on disk.

    Args:
        num_classes: outputs a network for it has.
        channels: channels of its images.
        num_examples: records in its files.
    """

    num_classes: int
    channels: int
    num_examples: int


def describe(name, data_dir, subset):
    """Finds a data set on disk.

    Args:
        name: name of the data set.
        data_dir: folder with its TFRecords.
        subset: name of the part.

    Returns:
        A `Subset`.

    Raises:
        slim_data.DataError: the data set is unknown or its files are missing or empty.
    """
    info = slim_data.info(name)
    files = slim_data.find_files(name, data_dir, subset)
    return Subset(info.num_classes, info.channels, slim_data.count_examples(files))


@contextlib.contextmanager
def explained(name, data_dir, subset):
    """Turns a TensorFlow error that a damaged record causes into one that names the record."""
    try:
        yield
    except tf.errors.OpError as error:
        explanation = slim_data.explain(error)
        if explanation is None:
            raise
        raise explanation from error
