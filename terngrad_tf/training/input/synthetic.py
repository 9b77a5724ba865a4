"""Synthetic input, to measure the speed of training without reading data."""

import tensorflow as tf

import slim_data
from terngrad_tf.training.configs.data_config import DataConfig
from terngrad_tf.training.errors import UserError
from terngrad_tf.training.input import data

PIXEL = 0.5


def find_dataset(config: DataConfig) -> data.DatasetShard:
    """Describes a data set that need not be on disk, with the published number of examples."""
    name, _, subset = config.place
    data.check_subset(name, subset)
    num_examples = slim_data.find_builder(name).info.splits[subset]
    if num_examples is None:
        raise UserError(
            "`benchmark_mode` needs a data set whose number of examples is known. "
            f"Received: dataset_name={name!r}"
        )
    info = slim_data.info(name)
    return data.DatasetShard(info.num_classes, info.channels, num_examples)


def load(
    name: str, batch_size: int, image_size: int, *, seed: int, start_step: int
) -> tf.data.Dataset:
    """Returns endless batches of images with all values 0.5 and of uniformly drawn labels.

    Elements are (float32 `[batch, image_size, image_size, channels]`, int32 `[batch]`). The data
    set `name` defines classes and channels; `start_step` batches are skipped.
    """
    info = slim_data.info(name)
    images = tf.fill([batch_size, image_size, image_size, info.channels], PIXEL)

    def batch(step):
        labels = tf.random.stateless_uniform(
            [batch_size], [seed, step], info.label_offset, info.num_classes, tf.int32
        )
        return images, labels

    steps = tf.data.Dataset.range(start_step, tf.int64.max)
    batches = steps.map(batch).apply(
        tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    )
    return data.without_autotuning(batches)
