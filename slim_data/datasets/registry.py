"""Registry of data sets by name, which programs may extend."""

import os
import re

from slim_data.common.errors import DataError
from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.datasets.cifar10 import Cifar10
from slim_data.datasets.digits import Digits
from slim_data.datasets.fashion_mnist import FashionMnist
from slim_data.datasets.flowers import Flowers
from slim_data.datasets.folder import Folder
from slim_data.datasets.imagenet.dataset import ImageNet
from slim_data.datasets.mnist import Mnist
from slim_data.datasets.sources.idx import Idx

DATASETS: dict[str, type[DatasetBuilder]] = {
    builder.info.name: builder
    for builder in (Digits, Mnist, FashionMnist, Idx, Cifar10, ImageNet, Flowers, Folder)
}


def register(builder: type[DatasetBuilder]) -> type[DatasetBuilder]:
    """Adds a data set, so that `convert`, `load` and training find its name; a class decorator.

    Args:
        builder: subclass of `DatasetBuilder`, see its example. Parallel conversion imports its
            module.

    Returns:
        The class.

    Raises:
        DataError: not such a class, a split has a name that file names cannot hold, or the data
            set's name is taken.
    """
    if not (isinstance(builder, type) and issubclass(builder, DatasetBuilder)):
        raise DataError(f"`builder` must be a subclass of DatasetBuilder. Received: {builder!r}")
    # Files of splits are told apart by what stands before the first hyphen.
    for split in builder.info.splits:
        if not re.fullmatch(r"\w+", split):
            raise DataError(
                "`builder` must name its splits by letters, digits and _. "
                f"Received: split={split!r}"
            )
    name = builder.info.name
    if DATASETS.setdefault(name, builder) is not builder:
        raise DataError(f"`builder` must have a name that is not taken. Received: name={name!r}")
    return builder


def find_builder(name: str) -> type[DatasetBuilder]:
    """Returns the `DatasetBuilder` subclass of a data set.

    Raises:
        DataError: no data set has this name.
    """
    if name not in DATASETS:
        raise DataError(
            f"`dataset_name` must be one of {', '.join(DATASETS)}. Received: dataset_name={name!r}"
        )
    return DATASETS[name]


def info(
    name: str, data_dir: str | os.PathLike | None = None, num_classes: int | None = None
) -> DatasetInfo:
    """Returns the `DatasetInfo` of a data set.

    Args:
        name: one of `DATASETS`.
        data_dir: folder of the records. Its labels.txt names the classes of `folder` and `idx`,
            which require the folder, and of own images in place of `flowers` or `imagenet`.
        num_classes: number of classes of own images. Default: as in labels.txt or the data set.

    Raises:
        DataError: no data set has this name, or the folder does not name its classes.

    Example:
        >>> info("mnist").num_classes
        10
    """
    return find_builder(name).read_info(data_dir, num_classes)
