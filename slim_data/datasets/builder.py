"""Description of a data set and source of its examples."""

import abc
import contextlib
import dataclasses
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from slim_data.common import progress
from slim_data.common.errors import DataError
from slim_data.datasets.sources.labels_file import find_labels, read_labels
from slim_data.files import checksums, download
from slim_data.preprocessing.base import Preprocessing
from slim_data.tfrecord import examples


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """Description of a data set.

    Args:
        name: name for `load` and `convert`.
        title: name in messages.
        labels: names of the classes in order, "" if unnamed. An empty tuple: labels.txt, beside the
            records, holds the names.
        channels: number of channels.
        image_size: height and width of the images, in pixels; None if they differ.
        splits: {split: published number of examples, or None}. A folder may hold another number.
        preprocessings: {name of a style: `Preprocessing`}; the first is the default.
        label_offset: number of the first class; smaller outputs match no image.
        num_shards: {split: number of files if the split is sharded}; 1 for others.
        is_sharded: whether `convert` shards by default.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    channels: int
    image_size: int | None
    splits: Mapping[str, int | None]
    preprocessings: Mapping[str, Preprocessing]
    label_offset: int = 0
    num_shards: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"train": 1000, "test": 1}
    )
    is_sharded: bool = False

    @property
    def num_classes(self) -> int:
        """Number of outputs of a network for the data set."""
        return self.label_offset + len(self.labels)

    def check_split(self, split: str) -> None:
        """Raises DataError unless the data set has this split."""
        if split not in self.splits:
            raise DataError(
                f"`split` must be one of {', '.join(self.splits)} for {self.name}. "
                f"Received: split={split!r}"
            )

    def find_preprocessing(self, name: str | None, image_size: int) -> Preprocessing:
        """Returns the `Preprocessing` of a style, by default the first.

        Args:
            name: name of a style, or None.
            image_size: height and width of the network's input, in pixels.

        Raises:
            DataError: no style has this name, or the style makes no images of this size.
        """
        known = self.preprocessings
        name = next(iter(known)) if name is None else name
        if name not in known:
            raise DataError(
                f"`preprocessing` must be one of {', '.join(known)} for {self.name}. "
                f"Received: preprocessing={name!r}"
            )
        largest = known[name].largest_size
        if largest is not None and image_size > largest:
            raise DataError(
                f"`image_size` must be at most {largest} with preprocessing={name!r}. "
                f"Received: image_size={image_size}"
            )
        return known[name]


class DatasetBuilder(abc.ABC):
    """A data set, registered under the name in its `info`.

    Args:
        raw_dir: folder of the official files; None if there are none.

    Attributes:
        info: `DatasetInfo`.
        downloads: `download.File`s, the official files that `raw_dir` must hold.
        other_checksums: (name, SHA-256) of further official archives.
        has_raw_dir: whether official files exist, and so `--raw_dir` and `--source`.
        takes_labels: whether `labels` is an argument.
        takes_own_images: whether a folder may hold own images, whose classes labels.txt names.
        tfds_name: the data set's name in tensorflow-datasets, or None.
        program: the program that writes the data set; None if `convert` does.

    Example, after which `slim_data.convert("stripes", ...)` writes the data set, and training
    programs run by the same process accept `--dataset_name stripes`:
        >>> @slim_data.register
        ... class Stripes(slim_data.DatasetBuilder):
        ...     info = slim_data.DatasetInfo(
        ...         name="stripes",
        ...         title="Stripes",
        ...         labels=("rows", "columns"),
        ...         channels=1,
        ...         image_size=28,
        ...         splits={"train": 100, "test": 20},
        ...         preprocessings=slim_data.info("mnist").preprocessings,
        ...     )
        ...     has_raw_dir = False
        ...
        ...     def fingerprint(self):
        ...         return {"version": 1}
        ...
        ...     def num_examples(self, split):
        ...         return self.info.splits[split]
        ...
        ...     def generate_images(self, split, start=0, stop=None):
        ...         for i in range(self.num_examples(split))[start:stop]:
        ...             image = np.zeros([28, 28, 1], np.uint8)
        ...             image[:: 2 + i] = 255
        ...             yield (image, 0) if i % 2 else (image.swapaxes(0, 1), 1)
    """

    info: DatasetInfo
    raw_dir: str | os.PathLike
    downloads: tuple[download.File, ...] = ()
    other_checksums: tuple[tuple[str, str], ...] = ()
    has_raw_dir = True
    takes_labels = False
    takes_own_images = False
    tfds_name: str | None = None
    program: str | None = None

    def __init__(self, raw_dir: str | os.PathLike | None = None):
        # None only for data sets without official files.
        self.raw_dir = raw_dir  # pyright: ignore[reportAttributeAccessIssue]

    @classmethod
    def command(cls, data_dir: str | os.PathLike) -> str:
        """Returns the command that writes the data set to a folder, for messages."""
        if cls.program is not None:
            return f"python -m slim_data.{cls.program} --output_directory {data_dir}"
        return (
            f"python -m slim_data.download_and_convert_data --dataset_name {cls.info.name} "
            f"--dataset_dir {data_dir}"
        )

    @classmethod
    def read_info(
        cls, data_dir: str | os.PathLike | None, num_classes: int | None = None
    ) -> DatasetInfo:
        """Returns the `DatasetInfo` of the records in a folder.

        If the data set accepts own images, the folder's labels.txt names the classes. Classes
        without a name are called "".

        Args:
            data_dir: the folder, or None.
            num_classes: number of classes of own images, without a background. Default: the number
                in labels.txt, at least that of the data set.

        Raises:
            DataError: a required labels.txt is missing, invalid, or names too many classes.
        """
        labels, label_offset = cls.info.labels, cls.info.label_offset
        has_file = cls.takes_own_images and data_dir is not None and find_labels(data_dir)
        if has_file or not labels:
            named, label_offset = read_labels(cls.info.name, data_dir)
            number = num_classes or max(len(named), len(labels))
            if len(named) > number:
                raise DataError(
                    f"`num_classes` must be at least the {len(named)} classes that labels.txt in "
                    f"{str(data_dir)!r} names. Received: num_classes={num_classes}"
                )
            labels = named + ("",) * (number - len(named))
        elif num_classes is not None:
            labels = ("",) * num_classes
        return dataclasses.replace(cls.info, labels=labels, label_offset=label_offset)

    @classmethod
    def tfds_range(cls, split: str, sizes: Mapping[str, int]) -> tuple[str, int, int]:
        """Returns (name, first, last + 1) of a split in tensorflow-datasets.

        Args:
            split: one of the data set's splits.
            sizes: {split in tensorflow-datasets: number of examples}.
        """
        return split, 0, sizes[split]

    def raw_paths(self) -> list[str]:
        """Returns the paths of the official files.

        Raises:
            DataError: some are missing.
        """
        names = [file.name for file in self.downloads]
        if missing := [file.name for file in self.missing()]:
            raise DataError(
                f"`raw_dir` must hold {', '.join(names)}, the official archives of "
                f"{self.info.title}. Received: raw_dir={str(self.raw_dir)!r} without "
                f"{', '.join(missing)}"
            )
        return [os.path.join(self.raw_dir, name) for name in names]

    def missing(self) -> list[download.File]:
        """Returns the `download.File`s that `raw_dir` lacks."""
        return [f for f in self.downloads if not os.path.isfile(os.path.join(self.raw_dir, f.name))]

    def prepare(
        self, report: Callable[[str], object], bar: progress.Bar = progress.progress_bar
    ) -> None:
        """Downloads the files that `raw_dir` lacks.

        Args:
            report: function of a line of text, called for each file.
            bar: function like `progress.progress_bar`.
        """
        for file in self.missing():
            size = "" if file.size is None else f" ({file.size / 1e6:.1f} MB)"
            report(f"Downloading {file.name}{size} to {self.raw_dir}")
            with bar(file.name, file.size, "bytes") as advance:
                download.fetch_file(file, self.raw_dir, progress=advance)

    def fingerprint(self) -> dict[str, Any]:
        """Returns a JSON-compatible dictionary that identifies the content of the examples."""
        return {os.path.basename(path): checksums.sha256(path) for path in self.raw_paths()}

    def check_official(self) -> None:
        """Raises DataError if an archive's checksum is not an official one; some are unknown."""
        official = {(file.name, file.sha256) for file in self.downloads}
        official.update(self.other_checksums)
        known = {name for name, sha256 in official if sha256 is not None}
        for path in self.raw_paths() if known else ():
            name = os.path.basename(path)
            if name in known and (name, sha256 := checksums.sha256(path)) not in official:
                raise DataError(
                    f"{path} is not the official archive of "
                    f"{self.info.title}: it is damaged or belongs to another data set. "
                    f"--allow_other_archives accepts it. Its SHA-256 is {sha256}"
                )

    @abc.abstractmethod
    def num_examples(self, split: str) -> int:
        """Returns the number of examples of a split, after checking the whole source.

        Raises:
            DataError: the source is missing or damaged.
        """

    def generate_images(
        self, split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Yields (image, label): uint8 array [height, width, channels] and the class's number.

        Args:
            split: one of the data set's splits.
            start: index of the first example.
            stop: index after the last example; default: all.

        Raises:
            DataError: the source is missing or damaged.
        """
        raise NotImplementedError

    def generate_examples(
        self, split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """Yields the serialized tf.Examples of a split, always in the same order.

        The default encodes the images of `generate_images` as PNG.

        Args:
            split, start, stop: see `generate_images`.

        Raises:
            DataError: `generate_images` raises it, or yields what `info` does not describe.
        """
        for number, (image, label) in enumerate(self.generate_images(split, start, stop), start):
            fault = _fault_of_image(self.info, image) or _fault_of_label(self.info, label)
            if fault:
                place = f"`generate_images` of {self.info.name}, image {number} (from 0) of {split}"
                raise DataError(f"{place}: {fault}")
            text = self.info.labels[label - self.info.label_offset]
            yield examples.build_png_example(image, label, text)


def _fault_of_image(info, image):
    """Returns what is wrong with an image, or None."""
    wanted = info.image_size, info.image_size, info.channels
    shape, dtype = np.shape(image), getattr(image, "dtype", type(image).__name__)
    fits = len(shape) == 3 and all(w in (None, n) for w, n in zip(wanted, shape, strict=True))
    if fits and 0 not in shape and dtype == np.uint8:
        return None
    sides = ", ".join(str(side or "any") for side in wanted)
    return f"the image must be uint8 [{sides}]. Received: {dtype} {list(shape)}"


def _fault_of_label(info, label):
    """Returns what is wrong with a label, or None."""
    first, last = info.label_offset, info.num_classes - 1
    with contextlib.suppress(TypeError):
        if first <= operator.index(label) <= last:
            return None
    return f"the label must be an integer, {first} to {last}. Received: {label!r}"
