"""Copies what a pipeline read from Python code, before replicas share it."""

import tensorflow as tf


def with_own_memory(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the data set with tensors that share no memory with NumPy arrays.

    A tensor from `tf.data.Dataset.from_generator` or `tf.numpy_function` uses the memory of an
    aligned array. TensorFlow never writes into such a tensor, but writes into parts of it: without
    a copy, a step whose replicas get parts of the batch changes the user's array.
    """
    # `map` calls with several arguments for tuples, not for named tuples.
    is_tuple = type(dataset.element_spec) is tuple

    @tf.autograph.experimental.do_not_convert
    def copy(*element):
        return tf.nest.map_structure(
            _copy, element if is_tuple else element[0], expand_composites=True
        )

    return dataset.map(copy)


def _copy(value):
    if value is None:
        return None
    is_number = value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_complex
    return tf.raw_ops.DeepCopy(x=value) if is_number or value.dtype.is_bool else value
