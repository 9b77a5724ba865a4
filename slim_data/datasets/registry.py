"""What there is to know of each data set, by name."""

import dataclasses
import types
from collections.abc import Mapping

from slim_data.common.errors import DataError
from slim_data.datasets import cifar10, digits, flowers, mnist
from slim_data.preprocessing import alexnet, cifar_resnet, cifarnet, inception, lenet, resnet, vgg
from slim_data.preprocessing.base import Preprocessing

_LENET_STYLE = {"lenet": lenet.PREPROCESSING}
_CIFAR_STYLES = {
    "cifarnet": cifarnet.PREPROCESSING,
    "resnet": cifar_resnet.PREPROCESSING,
}
_PHOTO_STYLES = {
    "inception": inception.PREPROCESSING,
    "alexnet": alexnet.PREPROCESSING,
    "vgg": vgg.PREPROCESSING,
    "resnet": resnet.PREPROCESSING,
}


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Facts of one data set.

    Args:
        name: what `load` and `convert` call it.
        title: its name in messages.
        labels: names of the classes, in the order of their numbers; empty where the records alone
            name them.
        num_labels: number of classes.
        label_offset: number of the first class; smaller ones are outputs that no image has.
        channels: channels of its images.
        image_size: height and width of its images, in pixels; None where they differ.
        splits: {name of a split: its number of examples in the published data set}. A folder may
            hold another number, as where the validation part was drawn otherwise.
        source: module with `generate_examples(source, split, start, stop)`,
            `num_examples(source, split)`, `identity(source)` and, where files are needed,
            `missing(source)`; None where a program of its own converts it.
        has_raw_dir: whether the source is a folder of files, `--raw_dir`.
        preprocessings: {name of a style: how it makes images ready for a network}; the first is
            the default.
        num_shards: {name of a split: number of files where it is spread over several}.
        is_sharded: whether `convert` spreads it over several files unless told otherwise.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    num_labels: int
    label_offset: int
    channels: int
    image_size: int | None
    splits: Mapping[str, int]
    source: types.ModuleType | None
    has_raw_dir: bool
    preprocessings: Mapping[str, Preprocessing]
    num_shards: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"train": 1000, "test": 1}
    )
    is_sharded: bool = False

    @property
    def num_classes(self):
        """Number of outputs that a network for the data set has."""
        return self.label_offset + self.num_labels

    def check_split(self, split):
        """Raises DataError unless `split` is one of the data set's."""
        if split not in self.splits:
            raise DataError(
                f"`split` must be one of {', '.join(self.splits)} for {self.name}. "
                f"Received: split={split!r}"
            )


DATASETS = {
    dataset.name: dataset
    for dataset in (
        DatasetInfo(
            name="digits",
            title="Digits",
            labels=digits.LABELS,
            num_labels=len(digits.LABELS),
            label_offset=0,
            channels=1,
            image_size=digits.SIDE,
            splits={"train": 1437, "test": 360},
            source=digits,
            has_raw_dir=False,
            preprocessings=_LENET_STYLE,
        ),
        DatasetInfo(
            name="mnist",
            title="MNIST",
            labels=mnist.LABELS,
            num_labels=len(mnist.LABELS),
            label_offset=0,
            channels=1,
            image_size=mnist.SIDE,
            splits={"train": 60000, "test": 10000},
            source=mnist,
            has_raw_dir=True,
            preprocessings=_LENET_STYLE,
        ),
        DatasetInfo(
            name="cifar10",
            title="Cifar10",
            labels=cifar10.LABELS,
            num_labels=len(cifar10.LABELS),
            label_offset=0,
            channels=cifar10.CHANNELS,
            image_size=cifar10.SIDE,
            splits={"train": 50000, "test": 10000},
            source=cifar10,
            has_raw_dir=True,
            preprocessings=_CIFAR_STYLES,
        ),
        DatasetInfo(
            name="imagenet",
            title="ImageNet",
            labels=(),
            num_labels=1000,
            label_offset=1,
            channels=3,
            image_size=None,
            splits={"train": 1281167, "validation": 50000},
            source=None,
            has_raw_dir=False,
            preprocessings=_PHOTO_STYLES,
        ),
        DatasetInfo(
            name="flowers",
            title="Flowers",
            labels=flowers.LABELS,
            num_labels=len(flowers.LABELS),
            label_offset=flowers.LABEL_OFFSET,
            channels=3,
            image_size=None,
            splits={"train": 3320, "validation": 350},
            source=flowers,
            has_raw_dir=True,
            preprocessings=_PHOTO_STYLES,
            num_shards={"train": 5, "validation": 5},
            is_sharded=True,
        ),
    )
}


def info(name):
    """Returns the `DatasetInfo` of a data set.

    Args:
        name: one of `DATASETS`.

    Raises:
        DataError: there is no such data set.

    Example:
        >>> info("mnist").num_classes
        10
    """
    if name not in DATASETS:
        raise DataError(
            f"`dataset_name` must be one of {', '.join(DATASETS)}. Received: dataset_name={name!r}"
        )
    return DATASETS[name]
