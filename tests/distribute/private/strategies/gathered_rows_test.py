"""Predictions of every type are gathered from all replicas in order."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy, private
from terngrad_tf.distribute.private.strategies.gathered_rows import gather_rows

# What TensorFlow gathers between processes.
_TYPES = (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)
_NUMBERS = np.array([[-1.5, 0.0], [2.0, 0.0], [0.0, 7.0]])


def texts(rows):
    return tf.constant([[f"é{row}" * row, ""] for row in range(rows)])


def of_type(dtype):
    return lambda rows: tf.cast(tf.cast(_NUMBERS[:rows], tf.int32), dtype)


def sparse(rows):
    return tf.sparse.from_dense(_NUMBERS[:rows])


class Predicts(keras.Model):
    def call(self, x):
        return {
            "sparse": tf.sparse.from_dense(x),
            "texts": tf.strings.as_string(x, precision=1),
            "ragged": tf.RaggedTensor.from_tensor(x, padding=0.0),
        }


class GatheredRowsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.named_parameters(
        *((dtype.name, of_type(dtype)) for dtype in (tf.bool, tf.uint8, tf.uint32, tf.bfloat16)),
        ("floats", lambda rows: tf.constant(_NUMBERS[:rows])),
        ("texts", texts),
        ("ragged texts", lambda rows: tf.RaggedTensor.from_tensor(texts(rows), ragged_rank=1)),
        ("ragged", lambda rows: tf.ragged.range(tf.range(rows))),
        ("ragged twice", lambda rows: tf.ragged.stack([tf.ragged.range([2, 1])] * rows)),
    )
    def test_rows_of_three_replicas(self, make):
        parts = [make(rows) for rows in (2, 1, 3)]
        self.assertAllEqual(self.gathered(parts), tf.concat(parts, 0))

    def test_sparse_rows(self):
        parts = [sparse(rows) for rows in (2, 1, 3)]
        found = tf.sparse.to_dense(self.gathered(parts))
        self.assertAllEqual(found, tf.sparse.to_dense(tf.sparse.concat(0, parts)))

    def gathered(self, parts):
        strategy = TernGradStrategy(3)
        gather = strategy.gather

        def checked(value, axis):
            self.assertIn(private.local_tensors(value)[0].dtype, _TYPES)
            return gather(value, axis)

        strategy.gather = checked
        return gather_rows(strategy, private.per_replica(parts))

    def test_replicas_without_examples_predict_nothing(self):
        with TernGradStrategy(3).scope():
            model = Predicts()
        x = np.concatenate([_NUMBERS, 2 * _NUMBERS[:1]]).astype(np.float32)
        options = {"batch_size": 3, "verbose": 0}
        found = model.predict(x, **options)
        self.assertAllEqual(tf.sparse.to_dense(found["sparse"]), x)
        self.assertAllEqual(found["texts"], tf.strings.as_string(x, precision=1))
        self.assertAllEqual(found["ragged"], tf.RaggedTensor.from_tensor(x, padding=0.0))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
