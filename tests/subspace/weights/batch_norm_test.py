"""Tests of recomputed batch-norm statistics, against NumPy."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.batch_norms import statistics
from terngrad_tf.subspace import update_batch_norm


def build(strategy, seed=0):
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        inner_inputs = keras.Input((5,))
        inner = keras.Model(inner_inputs, keras.layers.BatchNormalization()(inner_inputs))
        inputs = keras.Input((4,))
        x = keras.layers.BatchNormalization(name="first")(inputs)
        x = keras.layers.Dense(5)(x)
        x = keras.layers.BatchNormalization(name="frozen", trainable=False)(x)
        x = keras.layers.Dropout(0.5, seed=1)(x)
        model = keras.Model(inputs, inner(x))
        model.compile("sgd", "mse")
    return model, inner


class Block(keras.layers.Layer):
    """A layer that holds batch norm, and one that it does not use."""

    def __init__(self, inner):
        super().__init__()
        self.parts = {"used": inner, "unused": keras.layers.BatchNormalization()}

    def build(self, shape):
        self.parts["used"].build(shape)

    def call(self, x):
        return self.parts["used"](x)


class UpdateBatchNormTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.x = np.random.default_rng(0).normal(3, 2, (50, 4)).astype(np.float32)
        self.dataset = tf.data.Dataset.from_tensor_slices((self.x, np.zeros((50, 5)))).batch(12)

    def test_statistics_cover_all_examples_for_any_replicas(self):
        # Four replicas share a last batch of two examples.
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(4)):
            with self.subTest(strategy=strategy):
                model, inner = build(strategy)
                before = [v.numpy() for v in model.variables]
                update_batch_norm(model, self.dataset)
                first = model.get_layer("first")
                mean, variance = self.x.mean(0, np.float64), self.x.var(0, np.float64)
                np.testing.assert_allclose(first.moving_mean.numpy(), mean, rtol=1e-4)
                np.testing.assert_allclose(first.moving_variance.numpy(), variance, rtol=1e-3)
                changed = [
                    v.path
                    for v, old in zip(model.variables, before, strict=True)
                    if not np.array_equal(v.numpy(), old)
                ]
                nested = inner.layers[-1]
                self.assertCountEqual(
                    changed,
                    [
                        v.path
                        for layer in (first, nested)
                        for v in (layer.moving_mean, layer.moving_variance)
                    ],
                )
                self.assertEqual(first.momentum, 0.99)

    def test_small_variances_beside_large_means(self):
        x = np.random.default_rng(0).normal(1000, 1, (512, 4)).astype(np.float32)
        dataset = tf.data.Dataset.from_tensor_slices((x,)).batch(64)
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(2)):
            model, _ = build(strategy)
            update_batch_norm(model, dataset)
            found = model.get_layer("first").moving_variance.numpy()
            np.testing.assert_allclose(found, x.var(0, np.float64), rtol=1e-3)

    def test_steps_limit_the_batches(self):
        model, _ = build(tf.distribute.get_strategy())
        update_batch_norm(model, self.dataset, steps=2)
        mean = model.get_layer("first").moving_mean.numpy()
        np.testing.assert_allclose(mean, self.x[:24].mean(0, np.float64), rtol=1e-4)

    def test_evaluation_after_moved_weights_equals_training_mode(self):
        model, _ = build(tf.distribute.get_strategy())
        network = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization()])
        training = network(self.x, training=True)
        network.layers[0].kernel.assign(10 * network.layers[0].kernel)
        self.assertNotAllClose(network(self.x), training, atol=1)
        update_batch_norm(network, tf.data.Dataset.from_tensors(self.x))
        self.assertAllClose(network(self.x), network(self.x, training=True), atol=1e-3)

    def test_layers_inside_layers_of_ones_own_and_wrappers(self):
        inner = [keras.layers.BatchNormalization() for _ in range(2)]
        inputs = keras.Input((4,))
        outputs = keras.layers.TimeDistributed(inner[1])(inputs[:, :, None])
        model = keras.Model(inputs, [Block(inner[0])(inputs), outputs])
        update_batch_norm(model, tf.data.Dataset.from_tensors((self.x,)))
        mean, variance = self.x.mean(0, np.float64), self.x.var(0, np.float64)
        self.assertAllClose(inner[0].moving_mean, mean, rtol=1e-4)
        self.assertAllClose(inner[0].moving_variance, variance, rtol=1e-3)
        self.assertNotAllClose(inner[1].moving_mean, [0.0])

    def test_statistics_are_in_the_order_of_layers(self):
        norms = [keras.layers.BatchNormalization() for _ in range(3)]
        inner = keras.Sequential([keras.Input((4,)), *norms[:2]])
        model = keras.Sequential([keras.Input((4,)), inner, Block(norms[2])])
        expected = [v.path for norm in norms for v in (norm.moving_mean, norm.moving_variance)]
        self.assertEqual([v.path for v in statistics(model)], expected)

    def test_statistics_that_are_not_finite_are_replaced(self):
        model, _ = build(tf.distribute.get_strategy())
        first = model.get_layer("first")
        first.moving_mean.assign([np.nan, np.inf, 0, 1])
        first.moving_variance.assign([1, np.nan, -np.inf, 1])
        update_batch_norm(model, self.dataset)
        self.assertAllClose(first.moving_mean, self.x.mean(0, np.float64), rtol=1e-4)
        self.assertAllClose(first.moving_variance, self.x.var(0, np.float64), rtol=1e-3)

    def test_a_model_that_is_not_built_is_refused(self):
        network = keras.Sequential([keras.layers.BatchNormalization()])
        with self.assertRaisesRegex(ValueError, "`model` must be built. Received: model='"):
            update_batch_norm(network, self.dataset)

    def test_arrays_are_not_taken_for_batches(self):
        model, _ = build(tf.distribute.get_strategy())
        before = [v.numpy() for v in model.variables]
        for data in ((self.x, self.x), self.x, [(self.x, self.x)]):
            with self.assertRaisesRegex(ValueError, "`dataset` must be a tf.data.Dataset of"):
                update_batch_norm(model, data)
        self.assertAllEqual(before[1], model.variables[1].numpy())

    def test_without_batch_norm_or_without_data(self):
        plain = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        update_batch_norm(plain, self.dataset)
        model, _ = build(tf.distribute.get_strategy())
        with self.assertRaisesRegex(ValueError, "`dataset` must hold at least one batch"):
            update_batch_norm(model, self.dataset.take(0))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
