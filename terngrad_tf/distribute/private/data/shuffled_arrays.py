"""Batches of arrays in an order that depends only on a seed."""

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters import array_slicing
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter

from terngrad_tf.distribute.private.data.agreed_seeds import AgreedSeed


def shuffled_batches(adapter: ArrayDataAdapter, seed: int) -> tf.data.Dataset:
    """Returns `adapter.get_tf_dataset()` in a new order for every iteration.

    Keras' shuffle has no seed or, with TensorFlow's global seed, repeats its order in every epoch.
    """
    num_rows, batch_size = adapter._num_samples, adapter._batch_size
    arrays = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
    arrays = keras.tree.lists_to_tuples(arrays)

    def order(seed):
        keys = tf.random.stateless_uniform([num_rows], [seed, 0], dtype=tf.float64)
        if adapter._shuffle == "batch":
            keys += tf.cast(tf.range(num_rows) // batch_size, tf.float64)
        return tf.data.Dataset.from_tensor_slices(tf.argsort(keys))

    def rows(indices, arrays):
        def rows_of(array):
            if isinstance(array, array_slicing.TensorflowSparseWrapper):
                return array_slicing.slice_tensorflow_sparse_wrapper(array, indices)
            return tf.gather(array, indices, axis=0) if tf.is_tensor(array) else None

        return keras.tree.traverse(rows_of, arrays)

    seeds = tf.data.Dataset.random(AgreedSeed(seed), rerandomize_each_iteration=True).take(1)
    batches = tf.data.Dataset.zip(
        seeds.flat_map(order).batch(batch_size), tf.data.Dataset.from_tensors(arrays).repeat()
    )
    return batches.map(rows, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
