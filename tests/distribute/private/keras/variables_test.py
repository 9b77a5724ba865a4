"""Tests of variables as users' models and callbacks make and read them."""

import functools
import sys

import keras
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy

DATA = tf.ones([4, 3]), tf.ones([4, 1])


class Sums(keras.Model):
    """Makes a plain variable for each weight in `build`."""

    def __init__(self, initial_value):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.initial_value = initial_value

    def build(self, shape):
        self.dense.build(shape)
        weights = self.dense.trainable_variables
        self.sums = [tf.Variable(self.initial_value(w.shape), trainable=False) for w in weights]
        self.built = True

    def call(self, x):
        return self.dense(x)


def fit(strategy, initial_value):
    with strategy.scope():
        model = Sums(initial_value)
        model.compile("sgd", "mse")
    model.fit(*DATA, verbose=0)
    return model


# The undistributed one is used first: otherwise a warning says that the other is unused.
STRATEGIES = (tf.distribute.get_strategy, lambda: TernGradStrategy(2))


class VariablesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(tf.ones, tf.random.normal)
    @pytest.mark.default_cases(1)
    def test_a_model_makes_plain_variables_of_tensors_when_fit_builds_it(self, initial_value):
        for strategy in STRATEGIES:
            kernel, bias = fit(strategy(), initial_value).sums
            self.assertEqual((kernel.shape, bias.shape), ([3, 1], [1]))
            if initial_value is tf.ones:
                self.assertAllEqual(kernel, tf.ones([3, 1]))

    def test_the_error_of_a_first_build_reaches_the_user(self):
        def refuse(error, shape):
            raise error(f"no sum for a weight of shape {shape}")

        for error in (TypeError, ValueError):
            for strategy in STRATEGIES:
                with self.assertRaisesRegex(error, r"^no sum for a weight of shape \(3, 1\)$"):
                    fit(strategy(), functools.partial(refuse, error))

    def test_variables_are_numbers_for_python(self):
        for strategy in STRATEGIES:
            with strategy().scope():
                model = keras.Sequential([keras.layers.Dense(1)])
                model.compile(keras.optimizers.SGD(0.25), "mse")
            model.fit(*DATA, verbose=0)
            optimizer = model.optimizer
            self.assertEqual(float(optimizer.learning_rate), 0.25)
            self.assertEqual(int(optimizer.iterations), 1)
            self.assertIsInstance(int(optimizer.iterations), int)
            with self.assertRaisesRegex(TypeError, "Only scalar arrays"):
                float(model.layers[0].kernel)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
