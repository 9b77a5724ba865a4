"""Batch norm on several replicas, as docs/batch_norm.md describes it."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.comparison import numbers

EPSILON = 1e-3


def fitted(strategy, x, **options):
    """Trains a batch; returns the outputs' mean square, the moving mean and the moving variance."""
    with strategy.scope():
        layer = keras.layers.BatchNormalization(momentum=0.0, epsilon=EPSILON, **options)
        model = keras.Sequential([keras.layers.Input((3,)), layer])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    history = model.fit(x, np.zeros_like(x), batch_size=len(x), shuffle=False, verbose=0).history
    return history["loss"][0], layer.moving_mean.numpy(), layer.moving_variance.numpy()


class BatchNormTest(tf.test.TestCase):
    def test_each_replica_normalizes_its_part_of_the_batch(self):
        x = numbers(40, 3) * [1.0, 2.0, 3.0]
        parts = x.reshape(4, 10, 3)
        loss, mean, variance = fitted(TernGradStrategy(4, grad_bits=32), x)
        variances = parts.var(axis=1)
        self.assertAllClose(loss, (variances / (variances + EPSILON)).mean(), rtol=1e-4)
        # The statistics are means over replicas, so they lack the variance between parts.
        self.assertAllClose(mean, x.mean(axis=0), atol=1e-5)
        self.assertAllClose(variance, variances.mean(axis=0), rtol=1e-4)
        self.assertGreater(np.abs(variance / x.var(axis=0) - 1).max(), 0.01)

    def test_synchronized_batch_norm_uses_the_whole_batch(self):
        x = numbers(40, 3) * [1.0, 2.0, 3.0]
        alone = fitted(tf.distribute.get_strategy(), x)
        together = fitted(TernGradStrategy(4, grad_bits=32), x, synchronized=True)
        for a, b in zip(alone, together, strict=True):
            self.assertAllClose(b, a, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
