"""From files to streams of serialized tf.Examples, in order or shuffled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from slim_data.common.lazy import tf
from slim_data.tfrecord import corruption, record_files


def record_reader(
    files: Sequence[str], corrupt: Sequence[corruption.CorruptRecord]
) -> Callable[[tf.Tensor], tf.data.Dataset]:
    """Returns a function of a path, a scalar string tensor, that gives a file's records.

    Args:
        files: paths that the function will be given.
        corrupt: `CorruptRecord`s to leave out. Files that hold any are read into memory whole:
            TensorFlow's own reading ends at a wrong checksum.
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
    """Returns (paths, offsets, lengths) of the records of a file without the corrupt ones."""
    offsets, lengths = record_files.record_extents(path)
    kept = np.ones(len(offsets), bool)
    kept[[r.number for r in corrupt if r.path == path and not r.ends_file]] = False
    return np.full(kept.sum(), path, object), offsets[kept], lengths[kept]


def count_records(files: Sequence[str], corrupt: Sequence[corruption.CorruptRecord] | None) -> int:
    """Returns the number of records that `record_reader` gives.

    Args:
        files: paths.
        corrupt: `CorruptRecord`s to leave out; None if nothing is left out.

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
    """Returns the records of files; several are read at once, in turns.

    Args:
        files: paths.
        read: function that `record_reader` returned.
        num_readers: files read at once.
    """
    return _interleaved(tf.data.Dataset.from_tensor_slices(files), read, num_readers)


def read_in_random_order(
    files: Sequence[str],
    read: Callable[[tf.Tensor], tf.data.Dataset],
    num_readers: int,
    seed: tf.Tensor,
) -> tf.data.Dataset:
    """Returns the records of files in an order that `seed`, int64 [2], stands for."""
    order = tf.random.experimental.stateless_shuffle(files, seed, alg="philox")
    return _interleaved(tf.data.Dataset.from_tensor_slices(order), read, num_readers)


def shuffle_records(records: tf.data.Dataset, buffer_size: int, seed: tf.Tensor) -> tf.data.Dataset:
    """Returns records shuffled by a buffer, as `seed`, int64 [2], determines.

    To be called inside a function of `tf.data`, such as that of `flat_map`.
    """
    # tf.data mixes the global seed, as it finds it here, into the shuffle buffer's: pinned in
    # this function's graph, so that the order depends on the arguments alone.
    tf.compat.v1.set_random_seed(1)
    shuffle_seed = tf.random.stateless_uniform([], seed, None, None, tf.int64, alg="philox")
    return records.shuffle(buffer_size, shuffle_seed, reshuffle_each_iteration=False)


def _interleaved(files, read, num_readers):
    return files.interleave(
        read, cycle_length=num_readers, num_parallel_calls=num_readers, deterministic=True
    )
