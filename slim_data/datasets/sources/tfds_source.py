"""Data sets prepared by tensorflow-datasets, as an alternative source.

Source: https://www.tensorflow.org/datasets. Its records hold PNG or JPEG files, whose bytes are
kept; classes are matched by name.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from slim_data.common import progress
from slim_data.common.errors import DataError
from slim_data.common.extras import import_extra
from slim_data.common.lazy import tf
from slim_data.datasets.builder import DatasetBuilder
from slim_data.tfrecord import examples

_Made = TypeVar("_Made")

_FORMATS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg"}


class TfdsSource(DatasetBuilder):
    """A data set prepared by tensorflow-datasets, with a `tfds_name`.

    Args:
        tfds_dir: tensorflow-datasets' `data_dir`. Default: its own.
    """

    def __init__(self, builder: type[DatasetBuilder], tfds_dir: str | os.PathLike | None = None):
        super().__init__()
        self.info = builder.info
        self._dataset, self._tfds_dir = builder, tfds_dir

    def prepare(self, report: Callable[[str], object], bar: progress.Bar | None = None) -> None:
        """Lets tensorflow-datasets download and prepare the data set if necessary."""
        prepare_builder(self._builder())

    def fingerprint(self) -> dict[str, Any]:
        """See the base class."""
        info = self._builder().info
        return {info.full_name: int(info.dataset_size)}

    def num_examples(self, split: str) -> int:
        """See the base class."""
        _, first, last = self._range(self._builder(), split)
        return last - first

    def generate_examples(
        self, split: str, start: int = 0, stop: int | None = None
    ) -> Iterator[bytes]:
        """See the base class; in the order of tensorflow-datasets' files."""
        builder = self._builder()
        whole, first, last = self._range(builder, split)
        begin, end = first + start, last if stop is None else min(first + stop, last)
        names = builder.info.features["label"].names
        yield from read_records(builder, whole, begin, end, lambda r: _example(r, names, self.info))

    def _builder(self):
        # Created in each process, since it cannot be pickled.
        return tfds_builder(self._dataset.tfds_name, self._tfds_dir)

    def _range(self, builder, split):
        sizes = {name: part.num_examples for name, part in builder.info.splits.items()}
        return self._dataset.tfds_range(split, sizes)


def prepare_builder(builder: Any) -> None:
    """Lets tensorflow-datasets download and prepare a data set if necessary."""
    if not sys.stderr.isatty():
        _tfds().disable_progress_bar()
    try:
        builder.download_and_prepare()
    # Networks, disks and archives fail in many ways.
    except Exception as error:
        lines = str(error).split("\n")
        raise DataError(
            f"tensorflow-datasets cannot prepare {builder.name} in {builder.data_dir}: "
            f"{type(error).__name__}: {lines[0]}"
        ) from error


def read_records(
    builder: Any, split: str, start: int, stop: int, build: Callable[[dict[str, Any]], _Made]
) -> Iterator[_Made]:
    """Yields a function's results for the records start to stop - 1, in file order.

    Args:
        builder: builder of a prepared data set; its feature `image` stays encoded.
        build: function of a record, a dictionary of NumPy values.
    """
    if start >= stop:
        return
    tfds = _tfds()
    records = builder.as_dataset(
        split=tfds.core.ReadInstruction(split, from_=start, to=stop, unit="abs"),
        decoders={"image": tfds.decode.SkipDecoding()},
        # One file at a time, so that parts join to the whole.
        read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        shuffle_files=False,
    )
    for i, record in enumerate(records.as_numpy_iterator(), start):
        try:
            yield build(record)
        except (DataError, tf.errors.InvalidArgumentError) as error:
            raise DataError(
                f"{builder.data_dir}: example {i} (counted from 0) of {split}: {error}"
            ) from None


def _tfds():
    return import_extra("tensorflow_datasets", "tfds")


def tfds_builder(name: str | None, tfds_dir: str | os.PathLike | None) -> Any:
    """Returns tensorflow-datasets' builder of a data set in its `data_dir`."""
    return _tfds().builder(name, data_dir=tfds_dir and os.path.abspath(tfds_dir))


def _example(record, names, dataset):
    encoded = record["image"]
    found = [kind for start, kind in _FORMATS.items() if encoded.startswith(start)]
    if not found:
        raise DataError("the image is neither PNG nor JPEG")
    shape = tf.io.decode_image(encoded, dataset.channels, expand_animations=False).shape
    name = names[record["label"]]
    # tensorflow-datasets names digits by their numbers.
    index = dataset.labels.index(name) if name in dataset.labels else int(name)
    text = dataset.labels[index]
    return examples.build_example(encoded, found[0], shape, index + dataset.label_offset, text)
