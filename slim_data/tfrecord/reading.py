"""Reads files as streams of serialized tf.Examples, in order or shuffled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from slim_data.common.lazy import tf
from slim_data.tfrecord import corruption, record_files


def record_reader(
    files: Sequence[str], corrupt: Sequence[corruption.CorruptRecord]
) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Returns a function that maps a path, a scalar string tensor, to a dataset of its records.

    Args:
        corrupt: records to skip. Their files are read into memory, since TensorFlow stops reading
            at a wrong checksum.
    """
    damaged = sorted({record.path for record in corrupt}.intersection(files))
    if not damaged:
        return tf.data.TFRecordDataset
    columns = [_extents(path, corrupt) for path in damaged]
    paths, offsets, lengths = (np.concatenate(column) for column in zip(*columns, strict=True))

    def read_in_memory(path):
        mine = tf.constant(paths) == path
        return corruption.in_memory(
            path, tf.boolean_mask(offsets, mine), tf.boolean_mask(lengths, mine)
        )

    def read(path):
        is_damaged = tf.reduce_any(tf.constant(damaged) == path)
        whole = tf.data.TFRecordDataset(tf.boolean_mask([path], [tf.logical_not(is_damaged)]))
        others = tf.data.Dataset.from_tensor_slices(tf.boolean_mask([path], [is_damaged]))
        return whole.concatenate(others.flat_map(read_in_memory))

    return read


def _extents(path, corrupt):
    """Returns (paths, offsets, lengths) of a file's records without the corrupt ones."""
    offsets, lengths = record_files.record_extents(path)
    kept = np.ones(len(offsets), bool)
    kept[[r.number for r in corrupt if r.path == path and not r.ends_file]] = False
    return np.full(kept.sum(), path, object), offsets[kept], lengths[kept]


def count_records(files: Sequence[str], corrupt: Sequence[corruption.CorruptRecord] | None) -> int:
    """Returns the number of records that `record_reader` yields.

    Raises:
        DataError: the framing of a file is damaged and `corrupt` is None.
    """
    if corrupt is None:
        return record_files.count_examples(files)
    whole = record_files.count_examples(files, up_to_faults=True)
    return whole - sum(record.path in files and not record.ends_file for record in corrupt)


def read_in_order(
    files: Sequence[str], read: Callable[[tf.Tensor], tf.data.Dataset], num_readers: int
) -> tf.data.Dataset:
    """Returns the records of files, `num_readers` of which are read concurrently, in turns."""
    return _interleaved(tf.data.Dataset.from_tensor_slices(files), read, num_readers)


def read_in_random_order(
    files: Sequence[str],
    read: Callable[[tf.Tensor], tf.data.Dataset],
    num_readers: int,
    seed: tf.Tensor,
) -> tf.data.Dataset:
    """Returns the records of files in an order that depends on `seed`, int64 [2]."""
    order = tf.random.experimental.stateless_shuffle(files, seed, alg="philox")
    return _interleaved(tf.data.Dataset.from_tensor_slices(order), read, num_readers)


def shuffle_records(records: tf.data.Dataset, buffer_size: int, seed: tf.Tensor) -> tf.data.Dataset:
    """Returns records shuffled by a buffer; the order depends on `seed`, int64 [2].

    Call it inside a `tf.data` function, such as that of `flat_map`.
    """
    # tf.data mixes the global seed into the buffer's: fix it in this function's graph.
    tf.compat.v1.set_random_seed(1)
    shuffle_seed = tf.random.stateless_uniform([], seed, None, None, tf.int64, alg="philox")
    return records.shuffle(buffer_size, shuffle_seed, reshuffle_each_iteration=False)


def _interleaved(files, read, num_readers):
    return files.interleave(
        read, cycle_length=num_readers, num_parallel_calls=num_readers, deterministic=True
    )
