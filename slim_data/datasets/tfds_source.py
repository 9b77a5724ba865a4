"""Data sets that tensorflow-datasets downloads and prepares, as an alternative source.

Source: https://www.tensorflow.org/datasets. Its records hold the images as PNG or JPEG files,
whose bytes are kept; classes are matched by their names.
"""

import importlib
import os
import sys
from typing import NamedTuple

from slim_data.common.errors import DataError
from slim_data.common.lazy import tf
from slim_data.datasets import registry
from slim_data.datasets.flowers import num_validation
from slim_data.tfrecord import examples

# What tensorflow-datasets calls them.
NAMES = {"mnist": "mnist", "cifar10": "cifar10", "flowers": "tf_flowers"}
_FORMATS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg"}


class Source(NamedTuple):
    """A prepared data set: its name, one of `NAMES`, and tensorflow-datasets' `data_dir`."""

    name: str
    tfds_dir: str | None = None


def prepare(source):
    """Lets tensorflow-datasets download and prepare a data set unless that is done already.

    Raises:
        DataError: tensorflow-datasets is not installed, does not know the data set or fails.
    """
    prepare_builder(_builder(source))


def prepare_builder(builder):
    """Does what `prepare` does for any of tensorflow-datasets' builders."""
    if not sys.stderr.isatty():
        _tfds().disable_progress_bar()
    try:
        builder.download_and_prepare()
    # What may go wrong inside is of many kinds, of networks, disks and archives.
    except Exception as error:
        lines = str(error).split("\n")
        raise DataError(
            f"tensorflow-datasets cannot prepare {builder.name} in {builder.data_dir}: "
            f"{type(error).__name__}: {lines[0]}"
        ) from error


def identity(source):
    """Returns what the examples' content depends on."""
    builder = _builder(source)
    return {builder.info.full_name: int(builder.info.dataset_size)}


def generate_examples(source, split, start=0, stop=None):
    """Yields the serialized tf.Examples of a split, in the order of tensorflow-datasets' files.

    Args:
        source: a `Source` that is prepared.
        split: one of the data set's splits. Of the one split of the flowers, which comes
            shuffled, the first photos are for validation.
        start: number of the first example to yield, counted from 0.
        stop: number of the example to end before; by default there is none.

    Raises:
        DataError: tensorflow-datasets is not installed, or a record is not as expected.
    """
    builder = _builder(source)
    first, last = _range(builder, source, split)
    begin, end = first + start, last if stop is None else min(first + stop, last)
    if begin >= end:
        return
    whole = _whole(source, split)
    dataset = registry.info(source.name)
    names = builder.info.features["label"].names
    yield from read(builder, whole, begin, end, lambda r: _example(r, names, dataset))


def read(builder, split, start, stop, build):
    """Yields what a function makes of the records start to stop - 1, in the files' order.

    Args:
        builder: tensorflow-datasets' builder of a data set that is prepared, of images with the
            feature `image`, which stay encoded.
        split: one of its splits.
        start, stop: numbers of the first record and of the one after the last, from 0.
        build: function of a record, a dictionary of NumPy values.

    Raises:
        DataError: names the record of which it could not be made.
    """
    tfds = _tfds()
    records = builder.as_dataset(
        split=tfds.core.ReadInstruction(split, from_=start, to=stop, unit="abs"),
        decoders={"image": tfds.decode.SkipDecoding()},
        # One file after the other, so that parts of a split join to the whole.
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


def num_examples(source, split):
    """Returns how many examples `generate_examples` yields."""
    first, last = _range(_builder(source), source, split)
    return last - first


def _tfds():
    try:
        return importlib.import_module("tensorflow_datasets")
    except ImportError:
        raise DataError(
            "`source` tfds needs tensorflow-datasets, which is not installed: "
            "pip install 'terngrad_tf[tfds]'"
        ) from None


def _builder(source):
    return builder_of(NAMES[source.name], source.tfds_dir)


def builder_of(name, tfds_dir):
    """Returns tensorflow-datasets' builder of a data set in its `data_dir`.

    Raises:
        DataError: tensorflow-datasets is not installed.
    """
    return _tfds().builder(name, data_dir=tfds_dir and os.path.abspath(tfds_dir))


def _whole(source, split):
    """Returns the name of the split of tensorflow-datasets that holds a split."""
    return "train" if source.name == "flowers" else split


def _range(builder, source, split):
    """Returns the numbers of a split's first example and of the one after its last."""
    number = builder.info.splits[_whole(source, split)].num_examples
    if source.name != "flowers":
        return 0, number
    border = num_validation(number)
    return (0, border) if split == "validation" else (border, number)


def _example(record, names, dataset):
    encoded = record["image"]
    found = [kind for start, kind in _FORMATS.items() if encoded.startswith(start)]
    if not found:
        raise DataError("the image is neither PNG nor JPEG")
    shape = tf.io.decode_image(encoded, dataset.channels, expand_animations=False).shape
    name = names[record["label"]]
    # Digits go by their numbers there.
    index = dataset.labels.index(name) if name in dataset.labels else int(name)
    text = dataset.labels[index]
    return examples.build(encoded, found[0], shape, index + dataset.label_offset, text)
