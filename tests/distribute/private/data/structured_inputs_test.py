"""Models train as in plain Keras on batches that are not one dense tensor."""

import contextlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy

# The last batch of 8 holds 2, so replicas get one example or none.
NUM = 10
_rng = np.random.default_rng(0)
DENSE = _rng.normal(size=(NUM, 4)).astype(np.float32)
Y = _rng.normal(size=(NUM, 1)).astype(np.float32)
LENGTHS = _rng.integers(1, 6, size=NUM)
IDS = tf.ragged.constant([list(map(int, _rng.integers(0, 20, size=n))) for n in LENGTHS])
NUMBERS = tf.ragged.constant([list(map(float, _rng.normal(size=n))) for n in LENGTHS])
SPARSE = tf.sparse.from_dense(DENSE * (DENSE > 0.3))
STRINGS = tf.constant(["a", "b"] * (NUM // 2))


def ragged_ids(model, x):
    return model.dense(tf.reduce_mean(tf.ragged.map_flat_values(model.embedding, x), axis=1))


def ragged_rows(model, x):
    lengths = tf.cast(x.row_lengths(), tf.float32)
    return model.dense(tf.stack([tf.reduce_sum(x, 1), lengths], 1))


def ragged_padded(model, x):
    return model.dense(x.to_tensor()[..., tf.newaxis])[:, 0]


def sparse(model, x):
    return model.dense(tf.ensure_shape(tf.sparse.to_dense(x), [None, 4]))


def dense_and_ragged(model, x):
    means = tf.reduce_mean(tf.ragged.map_flat_values(model.embedding, x["ids"]), 1)
    return model.dense(tf.concat([x["numbers"], means], 1))


def strings(model, x):
    return model.dense(tf.one_hot(tf.strings.to_hash_bucket_fast(x, 5), 5))


def with_none(model, x):
    return model.dense(x["numbers"] if x["nothing"] is None else x["nothing"])


CASES = {
    "strings": (strings, STRINGS),
    "sparse": (sparse, SPARSE),
    "nested": (lambda model, x: model.dense(x[0] + x[1]["a"][0]), (DENSE, {"a": (DENSE,)})),
    "none": (with_none, {"numbers": DENSE, "nothing": None}),
    "dense_and_ragged": (dense_and_ragged, {"numbers": DENSE, "ids": IDS}),
    "ragged_ids": (ragged_ids, IDS),
    "ragged_rows": (ragged_rows, NUMBERS),
    "ragged_padded": (ragged_padded, NUMBERS),
}


class Subclassed(keras.Model):
    """Calls a function that may use this model's layers."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.dense = keras.layers.Dense(
            1, kernel_initializer=keras.initializers.GlorotUniform(seed=1)
        )
        self.embedding = keras.layers.Embedding(
            20, 3, embeddings_initializer=keras.initializers.RandomNormal(seed=1)
        )

    def call(self, x):
        return self.function(self, x)


def in_scope(strategy):
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def trained(function, x, strategy=None, **options):
    """Weights, loss and predictions of a model after two passes; `options` are of `compile`."""
    with in_scope(strategy):
        model = Subclassed(function)
        model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    if function is with_none:
        model.fit(x, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        loss = model.evaluate(x, Y, batch_size=8, verbose=0)
        predicted = model.predict(x, batch_size=8, verbose=0)
    else:
        data = tf.data.Dataset.from_tensor_slices((x, Y)).batch(8)
        model.fit(data, epochs=2, verbose=0)
        loss = model.evaluate(data, verbose=0)
        predicted = model.predict(data, verbose=0)
    return [*(weight.numpy() for weight in model.weights), loss, predicted]


def trained_on_windows(strategy=None):
    """Weights after training on shuffled windows, of a length that the data set does not state."""
    series = np.sin(np.arange(30, dtype=np.float32))[:, None]
    windows = keras.utils.timeseries_dataset_from_array(
        series[:-5], series[5:], sequence_length=5, batch_size=8, shuffle=True, seed=1
    )
    with in_scope(strategy):
        initializer = keras.initializers.GlorotUniform(seed=1)
        layers = [keras.Input([5, 1]), keras.layers.Flatten()]
        model = keras.Sequential([*layers, keras.layers.Dense(1, kernel_initializer=initializer)])
        model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    model.fit(windows, epochs=2, verbose=0)
    return model.get_weights()


class StructuredInputsTest(tf.test.TestCase, parameterized.TestCase):
    @pytest.mark.slow
    def test_shuffles_of_data_with_unknown_lengths_have_the_orders_of_plain_keras(self):
        keras.utils.set_random_seed(1)
        expected = trained_on_windows()
        keras.utils.set_random_seed(1)
        weights = trained_on_windows(TernGradStrategy(2, grad_bits=32))
        self.assertAllClose(weights, expected, rtol=1e-5, atol=1e-6)

    @parameterized.named_parameters((n, n) for n in CASES if not n.startswith("ragged"))
    @pytest.mark.default_cases(2)
    def test_models_train_as_in_plain_keras(self, name):
        self.check(name, 4)

    @parameterized.named_parameters((n, n) for n in CASES if n.startswith("ragged"))
    @pytest.mark.long
    def test_models_of_ragged_tensors_train_as_in_plain_keras(self, name):
        self.check(name, 4)

    @parameterized.named_parameters((name, name) for name in CASES)
    @pytest.mark.long
    def test_models_on_one_replica_train_as_in_plain_keras(self, name):
        self.check(name, 1)

    @pytest.mark.slow
    def test_none_among_inputs_trains_as_in_plain_keras_in_several_steps_a_call(self):
        self.check("none", 2, steps_per_execution=2)

    def check(self, name, num_replicas, **options):
        try:
            expected = trained(*CASES[name], **options)
        except AttributeError:
            if name != "none":
                raise
            self.skipTest("this release of Keras takes no None among its inputs")
        found = trained(*CASES[name], TernGradStrategy(num_replicas, grad_bits=32), **options)
        self.assertAllClose(found, expected, rtol=1e-5, atol=1e-5)

    def test_errors_of_calls_are_those_of_plain_keras(self):
        def broken(model, x):
            return x.no_such_attribute

        for strategy in (None, TernGradStrategy(2)):
            with self.assertRaisesRegex(AttributeError, "no_such_attribute"):
                trained(broken, DENSE, strategy)

    @parameterized.parameters(1, 2, 4)
    @pytest.mark.default_cases(1)
    def test_distributed_data_sets_take_weights_of_classes(self, num_replicas):
        labels = np.arange(NUM) % 2
        weights = {0: 1.0, 1: 3.0}

        def fit(strategy=None):
            with in_scope(strategy):
                start = keras.initializers.GlorotUniform(seed=1)
                model = keras.Sequential(
                    [keras.Input([4]), keras.layers.Dense(2, kernel_initializer=start)]
                )
                loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                model.compile(keras.optimizers.SGD(0.1), loss)
            data = tf.data.Dataset.from_tensor_slices((DENSE, labels)).batch(8)
            if strategy is not None:
                data = strategy.experimental_distribute_dataset(data)
            history = model.fit(data, class_weight=weights, epochs=2, verbose=0).history
            return [*(weight.numpy() for weight in model.weights), *history["loss"]]

        found = fit(TernGradStrategy(num_replicas, grad_bits=32))
        self.assertAllClose(found, fit(), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
