"""What training and evaluation need to know of a data set."""

import dataclasses

import slim_data
from terngrad_tf.training.errors import UserError


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
        UserError: the data set has no such part.
        slim_data.DataError: the data set is unknown or its files are missing or empty.
    """
    info = slim_data.info(name)
    if subset not in info.splits:
        raise UserError(
            f"`subset` must be one of {', '.join(info.splits)} for {name}. "
            f"Received: subset={subset!r}"
        )
    files = slim_data.find_files(name, data_dir, subset)
    return Subset(info.num_classes, info.channels, slim_data.count_examples(files))
