"""The data sets by name, to which a program may add its own."""

import os

from slim_data.common.errors import DataError
from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.datasets.cifar10 import Cifar10
from slim_data.datasets.digits import Digits
from slim_data.datasets.fashion_mnist import FashionMnist
from slim_data.datasets.flowers import Flowers
from slim_data.datasets.folder import Folder
from slim_data.datasets.idx import Idx
from slim_data.datasets.imagenet.dataset import ImageNet
from slim_data.datasets.mnist import Mnist

DATASETS: dict[str, type[DatasetBuilder]] = {
    builder.info.name: builder
    for builder in (Digits, Mnist, FashionMnist, Idx, Cifar10, ImageNet, Flowers, Folder)
}


def register(builder: type[DatasetBuilder]) -> type[DatasetBuilder]:
    """Adds a data set, so that `convert`, `load` and training know its name; a class decorator.

    Args:
        builder: subclass of `DatasetBuilder`, which gives an example. Processes that write files
            in parallel import it by its module, which must be one that can be imported.

    Returns:
        The class.

    Raises:
        DataError: it is no such class, or the name is another one's.
    """
    if not (isinstance(builder, type) and issubclass(builder, DatasetBuilder)):
        raise DataError(f"`builder` must be a subclass of DatasetBuilder. Received: {builder!r}")
    name = builder.info.name
    if DATASETS.setdefault(name, builder) is not builder:
        raise DataError(f"`builder` must have a name of its own. Received: name={name!r}")
    return builder


def find_builder(name: str) -> type[DatasetBuilder]:
    """Returns the `DatasetBuilder` subclass of a data set.

    Raises:
        DataError: there is no such data set.
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
        data_dir: folder that it was written to, whose labels.txt names the classes of `folder` and
            `idx`, which need it, and of images of one's own in the place of `flowers` or
            `imagenet`.
        num_classes: how many classes images of one's own have. Default: as labels.txt or the data
            set says.

    Raises:
        DataError: there is no such data set, or the folder does not name its classes.

    Example:
        >>> info("mnist").num_classes
        10
    """
    return find_builder(name).read_info(data_dir, num_classes)
