"""`train_on_batch` and its like, compared with plain Keras."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.clients.comparison import ClientTest, numbers, weights

# 4 replicas: uneven parts, and parts without examples.
SIZES = (7, 2)


def classifier(strategy):
    with strategy.scope():
        inputs = layers.Input((3,))
        model = keras.Model(inputs, layers.Dense(1, "sigmoid")(inputs))
        metrics = [
            "accuracy",
            keras.metrics.AUC(num_thresholds=20),
            keras.metrics.RootMeanSquaredError(),
        ]
        model.compile("sgd", "binary_crossentropy", metrics=metrics)
    return model


def metrics_of_batches(strategy):
    model, results = classifier(strategy), []
    for size in SIZES:
        x = numbers(size, 3)
        y = (np.arange(size) % 2)[:, np.newaxis].astype(np.float32)
        results += [
            model.train_on_batch(x, y, class_weight={0: 1.0, 1: 3.0}),
            model.test_on_batch(x, y, sample_weight=x[:, 0] ** 2, return_dict=True),
        ]
    model.reset_metrics()
    return results, model.train_on_batch(x, y, return_dict=True), weights(model)


class OwnStep(keras.Model):
    """Returns a metric, a number, and another number with the name of a metric."""

    def train_step(self, data):
        x, y, _ = data
        y_pred = self(x)
        mae = self.compute_metrics(x, y, y_pred)["mae"]
        return {"loss": self.compute_loss(x, y, y_pred), "mae": mae, "mean": tf.reduce_mean(x)}

    def test_step(self, data):
        x, y, _ = data
        mae = self.compute_metrics(x, y, self(x))["mae"]
        return {"loss": tf.reduce_mean(y), "mae": mae}


def own_steps(strategy):
    with strategy.scope():
        inputs = layers.Input((3,))
        model = OwnStep(inputs, layers.Dense(1)(inputs))
        model.compile("sgd", "mse", metrics=["mae"])
    data = [(numbers(size, 3), numbers(size, 1, seed=1)) for size in SIZES]
    return [
        [f(*d, return_dict=True) for f in (model.train_on_batch, model.test_on_batch)] for d in data
    ]


def sparse_batches(strategy):
    with strategy.scope():
        inputs = layers.Input((3,), sparse=True)
        model = keras.Model(inputs, layers.Dense(1)(inputs))
        model.compile("sgd", "mse", metrics=["mae"])
    results = []
    for size in SIZES:
        x, y = tf.sparse.from_dense(numbers(size, 3)), numbers(size, 1, seed=1)
        results += [model.train_on_batch(x, y), model.test_on_batch(x, y)]
        results.append(model.predict_on_batch(x))
    return results, weights(model)


def ragged_batches(strategy):
    with strategy.scope():
        mean = layers.Lambda(lambda x: tf.reduce_mean(x, 1, keepdims=True))
        model = keras.Sequential([mean, layers.Dense(1)])
    rows = [[1.0, 2.0], [3.0], [5.0, 6.0, 7.0], [7.0], [9.0, 1.0], [2.0], [8.0]]
    return [model.predict_on_batch(tf.ragged.constant(rows[:size])) for size in SIZES]


class SingleBatchesTest(ClientTest):
    num_replicas = (4,)

    def test_metrics_are_those_of_the_batch(self):
        self.assert_same_without_strategy([metrics_of_batches])

    @pytest.mark.slow
    def test_sparse_and_ragged_batches_are_split(self):
        self.assert_same_without_strategy([sparse_batches, ragged_batches])

    @pytest.mark.slow
    def test_numbers_of_own_steps_are_those_of_the_batch(self):
        self.assert_same_without_strategy([own_steps])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
