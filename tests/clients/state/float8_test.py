"""Layers in float8 train as in plain Keras."""

import sys

import keras
import numpy as np
import pytest

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.comparison import ClientTest, fit, numbers, weights


def float8_model(strategy, **options):
    with strategy.scope():
        model = keras.Sequential([keras.Input([6]), keras.layers.Dense(4), keras.layers.Dense(2)])
        model.quantize("float8")
        model.compile(keras.optimizers.SGD(0.01, **options), "mse")
    return model


def float8(strategy):
    # Three replicas share 8 examples and one.
    return fit(float8_model(strategy), numbers(9, 6), numbers(9, 2, seed=1), epochs=1)


def accumulated_float8(strategy):
    model = float8_model(strategy, gradient_accumulation_steps=2)
    return fit(model, numbers(16, 6), numbers(16, 2, seed=1), epochs=1)


class Float8Test(ClientTest):
    num_replicas = (3,)

    def test_float8_layers_keep_the_maxima_of_whole_batches(self):
        self.assert_same_without_strategy([float8])

    @pytest.mark.slow
    def test_so_do_accumulated_steps(self):
        self.assert_same_without_strategy([accumulated_float8])

    @pytest.mark.slow
    def test_float8_layers_train_with_ternary_gradients(self):
        model = float8_model(TernGradStrategy(2))
        before = weights(model)
        after = fit(model, numbers(8, 6), numbers(8, 2))["weights"]
        for old, new in zip(before, after, strict=True):
            self.assertAllEqual(np.isfinite(new), np.ones_like(new))
            self.assertNotAllEqual(new, old)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
