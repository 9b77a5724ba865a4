"""ImageNet (ILSVRC 2012) from tensorflow-datasets, as an alternative source.

Source: https://www.tensorflow.org/datasets/catalog/imagenet2012. Its records hold JPEG files, whose
bytes are kept, and no bounding boxes; CMYK and PNG files are already repaired.
"""

import functools
from collections.abc import Mapping
from typing import Any

from slim_data.common.errors import DataError
from slim_data.datasets.imagenet import records
from slim_data.datasets.sources import tfds_source
from slim_data.tfrecord import write_splits

NAME = "imagenet2012"


def find_sources(
    tfds_dir: str | None, names: Mapping[str, str], raw_side: int | None, options: Mapping[str, Any]
) -> dict[str, write_splits.SplitSource]:
    """Returns {split: `SplitSource`}, after preparing the data set if necessary.

    Args:
        tfds_dir: tensorflow-datasets' `data_dir`. To prepare the data set, its downloads/manual
            must hold ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar.
        names: {WordNet id: names} of the classes, in their order from 1.
        raw_side: see `records.image_example`.
        options: everything else that the examples depend on.
    """
    builder = tfds_source.tfds_builder(NAME, tfds_dir)
    tfds_source.prepare_builder(builder)
    found = {}
    for split in ("validation", "train"):
        generate = functools.partial(_generate, tfds_dir, split, names, raw_side)
        fingerprint = {**options, builder.info.full_name: int(builder.info.dataset_size)}
        number = builder.info.splits[split].num_examples
        found[split] = write_splits.SplitSource(generate, number, fingerprint)
    return found


def _generate(tfds_dir, split, names, raw_side, start, stop):
    builder = tfds_source.tfds_builder(NAME, tfds_dir)
    synsets = builder.info.features["label"].names
    labels = records.class_numbers(names)

    def build(record):
        synset = synsets[record["label"]]
        if synset not in names:
            raise DataError(f"its class is not in the labels file: {synset}")
        filename = record["file_name"].decode()
        data = record["image"]
        return records.image_example(
            data, filename, synset, labels[synset], names[synset], (), raw_side
        )

    yield from tfds_source.read_records(builder, split, start, stop, build)
