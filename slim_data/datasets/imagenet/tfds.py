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
    tfds_dir: str | None, example_builder: records.ExampleBuilder, options: Mapping[str, Any]
) -> dict[str, write_splits.SplitSource]:
    """Returns {split: `SplitSource`}, after preparing the data set if necessary.

    Args:
        tfds_dir: tensorflow-datasets' `data_dir`. To prepare the data set, its downloads/manual
            must hold ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar.
        options: everything else that the examples depend on.
    """
    builder = tfds_source.tfds_builder(NAME, tfds_dir)
    tfds_source.prepare_builder(builder)
    found = {}
    for split in ("validation", "train"):
        generate = functools.partial(_generate, tfds_dir, split, example_builder)
        fingerprint = {**options, builder.info.full_name: int(builder.info.dataset_size)}
        number = builder.info.splits[split].num_examples
        found[split] = write_splits.SplitSource(generate, number, fingerprint)
    return found


def _generate(tfds_dir, split, example_builder, start, stop):
    builder = tfds_source.tfds_builder(NAME, tfds_dir)
    synsets = builder.info.features["label"].names

    def build(record):
        synset = synsets[record["label"]]
        if synset not in example_builder.names:
            raise DataError(f"its class is not in the labels file: {synset}")
        return example_builder.build(record["image"], record["file_name"].decode(), synset)

    yield from tfds_source.read_records(builder, split, start, stop, build)
