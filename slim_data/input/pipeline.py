"""Builds the `tf.data` pipelines from shards to batches.

An endless training stream concatenates epochs 0, 1, 2, ... Each epoch depends only on (seed, its
number): order of files, interleaving and shuffling. A stream can therefore start at any step: whole
epochs are skipped by counting, and the rest by skipping undecoded records.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from slim_data.common.arguments import check_at_least
from slim_data.common.errors import DataError
from slim_data.common.lazy import tf
from slim_data.datasets import registry
from slim_data.input import corrupt_records, data_files
from slim_data.input.batching import Batching
from slim_data.input.load_options import LoadOptions
from slim_data.tfrecord import reading, record_files

# Up to this size, in bytes, all framing is checked before the first record.
_CHECKED_SIZE = 2**30
# This many make unequal sizes harmless.
_FILES_FOR_EACH_PIPELINE = 10

_LOG = logging.getLogger(__name__)


def load(
    name: str,
    data_dir: str | os.PathLike,
    split: str,
    batch_size: int,
    image_size: int,
    training: bool,
    **options: Any,
) -> tf.data.Dataset:
    """Returns batches of images and labels as a `tf.data.Dataset`.

    Each pass, an epoch of `model.fit`, yields each example once; the last batch may be smaller. For
    training, each pass shuffles anew; otherwise, the order depends only on the files and
    `num_readers`. With `repeat`, the dataset is endless, and batches span epochs. Equal arguments
    give equal batches, for any number of threads and any global random seed.

    Args:
        name: one of `DATASETS`.
        data_dir: folder written by `convert`.
        split: one of the data set's splits.
        batch_size: examples per batch.
        image_size: height and width of the images in pixels.
        training: whether to shuffle and augment.
        **options: fields of `LoadOptions`.

    Returns:
        A dataset of (images, labels): float32 of shape [batch, image_size, image_size, channels],
        and int32 of shape [batch].

    Raises:
        DataError: an argument is out of range, or files are missing, incomplete, empty or
            truncated. A damaged record raises a `tf.errors.OpError` during iteration: see
            `locate_corrupt_records`.

    Example:
        >>> test = slim_data.load("digits", "/data/digits", "test", 100, 28, training=False)
        >>> sum(len(labels) for images, labels in test)
        360
    """
    settings = LoadOptions(**options)
    check_at_least(1, batch_size=batch_size, image_size=image_size)
    if settings.rows is not None and settings.rows[1] > batch_size:
        raise DataError(
            f"`rows` must end at most at batch_size={batch_size}. Received: rows={settings.rows}"
        )
    dataset = registry.info(name, data_dir, settings.num_classes)
    preprocessing = dataset.find_preprocessing(settings.preprocessing, image_size)
    files = data_files.find_files(name, data_dir, split)
    corrupt = None
    if settings.skip_corrupt_records:
        corrupt = _skipped(name, data_dir, split, settings.num_classes)
    # (n, i): this pipeline takes every n-th record, starting with record i.
    part = num_pipelines, pipeline = settings.num_input_pipelines, settings.input_pipeline_id
    if shards_by_file(len(files), num_pipelines):
        files, part = files[pipeline::num_pipelines], (1, 0)
    num_examples = None
    needs_count = settings.repeat and (settings.start_step or part[0] > 1)
    # TensorFlow accepts a file that ends inside a record's header (12 bytes). Large data sets have
    # large records, so such a cut is unlikely, and checking is slow.
    if record_files.total_size(files) <= _CHECKED_SIZE or needs_count:
        num_examples = _num_examples(files, corrupt, part, settings.repeat)
    first_epoch, num_skipped = 0, settings.start_step * batch_size
    if settings.repeat and settings.start_step and num_examples is not None:
        first_epoch, num_skipped = divmod(num_skipped, num_examples)

    read = reading.record_reader(files, corrupt or [])
    records = _records(files, read, part, training, settings, first_epoch)
    if num_skipped:
        records = records.skip(num_skipped)
    batching = Batching(
        dataset=dataset,
        preprocessing=preprocessing,
        image_size=image_size,
        augments=training and preprocessing.augment is not None,
        batch_size=batch_size,
        rows=settings.rows or (0, batch_size),
        drop_remainder=settings.drops_remainder,
        num_parallel_calls=settings.num_parallel_calls or tf.data.AUTOTUNE,
    )
    own_seed = tf.constant([settings.seed, pipeline], tf.int64)
    own_seed = tf.random.stateless_uniform([], own_seed, None, None, tf.int64, alg="philox")
    batches = batching.batches(records, own_seed, settings.start_step)
    # Keras asks for the number of batches, which TensorFlow cannot infer.
    num_left = None if num_examples is None else max(num_examples - num_skipped, 0)
    num_batches = _num_batches(num_left, batch_size, settings)
    batches = batches.apply(tf.data.experimental.assert_cardinality(num_batches))
    return batches.prefetch(tf.data.AUTOTUNE).with_options(
        _tf_options(num_pipelines == 1 and settings.rows is None)
    )


def shards_by_file(num_files: int, num_input_pipelines: int) -> bool:
    """Returns True if pipelines divide a split by whole files.

    If the files do not divide evenly, some pipelines repeat their examples more often: by a tenth
    at most.
    """
    return (
        num_files % num_input_pipelines == 0
        or num_files >= _FILES_FOR_EACH_PIPELINE * num_input_pipelines
    )


def _records(files, read, part, training, settings, first_epoch):
    """Returns the serialized examples of one epoch or, with `repeat`, of all from `first_epoch` on.

    Args:
        read: see `reading.record_reader`.
        part: (n, i), for every n-th record, starting with record i.
    """

    def epoch(number):
        if not training:
            return reading.read_in_order(files, read, settings.num_readers).shard(*part)
        # The same order of files in all pipelines keeps their parts disjoint.
        common_seed = tf.stack([settings.seed, number])
        records = reading.read_in_random_order(files, read, settings.num_readers, common_seed)
        own_seed = tf.random.experimental.stateless_fold_in(
            common_seed, settings.input_pipeline_id, alg="philox"
        )
        return reading.shuffle_records(records.shard(*part), settings.shuffle_buffer, own_seed)

    if settings.repeat:
        return tf.data.Dataset.range(first_epoch, tf.int64.max).flat_map(epoch)
    return _one_epoch(settings.seed).flat_map(epoch)


def _skipped(name, data_dir, split, num_classes):
    """Returns the `CorruptRecord`s of a split and logs them."""
    found = corrupt_records.corrupt_records(name, data_dir, split, num_classes)
    for record in found:
        rest = " and all that follows in this file" if record.ends_file else ""
        _LOG.warning("skipped%s: %s", rest, record.error())
    _LOG.warning("%d corrupt %s records of %s skipped", len(found), split, name)
    return found


def _one_epoch(seed):
    """Returns a dataset of one number, which differs in each pass."""

    @tf.function
    def draw():
        # As in `reading.shuffle_records`, keep the global seed out.
        tf.compat.v1.set_random_seed(1)
        return tf.data.Dataset.random(seed, rerandomize_each_iteration=True).take(1)

    return draw()


def _num_examples(files, corrupt, part, repeat):
    """Returns the number of records of `files` that this pipeline takes per epoch."""
    num_pipelines, pipeline = part
    num_examples = len(range(pipeline, reading.count_records(files, corrupt), num_pipelines))
    if num_examples == 0 and repeat:
        # Repeating an empty dataset would neither yield a batch nor end.
        raise DataError(
            f"`num_input_pipelines` must be at most the number of examples. "
            f"Received: num_input_pipelines={num_pipelines}"
        )
    return num_examples


def _num_batches(num_examples, batch_size, settings):
    """Returns the cardinality of a dataset of batches; `num_examples` is None if unknown."""
    if settings.repeat:
        return tf.data.INFINITE_CARDINALITY
    if num_examples is None:
        return tf.data.UNKNOWN_CARDINALITY
    spare = 0 if settings.drops_remainder else batch_size - 1
    return (num_examples + spare) // batch_size


def _tf_options(may_be_divided):
    options = tf.data.Options()
    options.deterministic = True
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = (
        policy.DATA if may_be_divided else policy.OFF
    )
    return options
