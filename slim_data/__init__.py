"""Image data sets: sources -> tf.Example -> shards of TFRecords -> `tf.data` pipelines.

    slim_data.convert("digits", "/data/digits", shard=True, train_shards=4)
    train = slim_data.load("digits", "/data/digits", "train", 64, 28, training=True)

The package needs neither Keras nor `terngrad_tf`, and loads TensorFlow at first use.
"""

from slim_data.common.errors import DataError
from slim_data.datasets.builder import DatasetBuilder, DatasetInfo
from slim_data.datasets.conversion import convert
from slim_data.datasets.folder_conversion import convert_folder
from slim_data.datasets.registry import DATASETS, find_builder, info, register
from slim_data.input.corrupt_records import (
    corrupt_records,
    locate_corrupt_record,
    locate_corrupt_records,
    verify,
)
from slim_data.input.data_files import find_files
from slim_data.input.image_batches import image_batches
from slim_data.input.load_options import LoadOptions
from slim_data.input.pipeline import load
from slim_data.tfrecord.corruption import CorruptRecord
from slim_data.tfrecord.record_files import count_examples
from slim_data.tfrecord.splitting import split_dataset

__all__ = [
    "DATASETS",
    "CorruptRecord",
    "DataError",
    "DatasetBuilder",
    "DatasetInfo",
    "LoadOptions",
    "convert",
    "convert_folder",
    "corrupt_records",
    "count_examples",
    "locate_corrupt_record",
    "locate_corrupt_records",
    "find_builder",
    "find_files",
    "image_batches",
    "info",
    "load",
    "register",
    "split_dataset",
    "verify",
]
