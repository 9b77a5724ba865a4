"""Optimizers follow the formulas of the TernGrad experiments."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.training.optimization import optimizers, schedules

START = np.array([1.0, -2.0, 0.5])
GRADIENTS = [np.array(g) for g in ([0.1, -0.2, 0.0], [0.3, 0.1, -1.0], [-0.2, 0.4, 0.7])]
RATES = [0.1, 0.1, 0.01]


class DropAfterTwoSteps(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return keras.ops.where(step < 2, 0.1, 0.01)


def run(optimizer):
    """Returns the weights after each step."""
    variable = keras.Variable(START, dtype="float32")
    optimizer.build([variable])
    weights = []
    for gradient in GRADIENTS:
        optimizer.apply([tf.constant(gradient, tf.float32)])
        weights.append(variable.numpy().astype("float64"))
    return weights


def momentum_oracle(w, a=0.0):
    for rate, g in zip(RATES, GRADIENTS, strict=True):
        a = 0.9 * a + g
        w = w - rate * a
        yield w


def gd_oracle(w):
    for rate, g in zip(RATES, GRADIENTS, strict=True):
        w = w - rate * g
        yield w


def adam_oracle(w, m=0.0, v=0.0):
    for t, (rate, g) in enumerate(zip(RATES, GRADIENTS, strict=True), start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
        yield w


def abs_adam_oracle(w, m=0.0, a=0.0):
    for t, (rate, g) in enumerate(zip(RATES, GRADIENTS, strict=True), start=1):
        m, a = 0.9 * m + 0.1 * g, 0.999 * a + 0.001 * abs(g)
        w = w - rate * m / (1 - 0.9**t) / (a / (1 - 0.999**t) + 1e-8)
        yield w


def rmsprop_oracle(w, ms=1.0, a=0.0):
    for rate, g in zip(RATES, GRADIENTS, strict=True):
        ms = 0.9 * ms + 0.1 * g**2
        a = 0.9 * a + rate * g / np.sqrt(ms + 1.0)
        w = w - a
        yield w


ORACLES = {
    "abs_adam": abs_adam_oracle,
    "adam": adam_oracle,
    "gd": gd_oracle,
    "momentum": momentum_oracle,
    "rmsprop": rmsprop_oracle,
}


class OptimizersTest(tf.test.TestCase):
    def test_every_optimizer_follows_its_formula_while_the_rate_changes(self):
        self.assertEqual(sorted(ORACLES), optimizers.available())
        for name, oracle in ORACLES.items():
            weights = run(optimizers.build_optimizer(name, DropAfterTwoSteps(), momentum=0.9))
            for got, expected in zip(weights, oracle(START), strict=True):
                self.assertAllClose(got, expected, rtol=1e-5, msg=name)

    def test_moving_averages_warm_up_as_one_plus_n_over_ten_plus_n(self):
        for name in optimizers.available():
            optimizer = optimizers.build_optimizer(name, 0.1)
            weights = run(optimizer)
            average = weights[0]
            for n, w in enumerate(weights[1:], start=1):
                decay = (1 + n) / (10 + n)
                average = decay * average + (1 - decay) * w
            variable = keras.Variable(START, dtype="float32")
            optimizer.finalize_variable_values([variable])
            self.assertAllClose(variable.numpy(), average, rtol=1e-5, msg=name)

    def test_moving_averages_reach_their_limit(self):
        optimizer = optimizers.build_optimizer("gd", 0.1)
        optimizer.build([keras.Variable(START, dtype="float32")])
        optimizer.iterations.assign(1_000_000)
        self.assertAllClose(float(optimizer.ema_momentum), 0.9999)

    def test_moving_averages_of_local_steps_by_time_warm_up_by_exchanges(self):
        keras.utils.set_random_seed(0)
        with TernGradStrategy(num_nodes=2).scope():
            model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1, use_bias=False)])
            inner = keras.optimizers.SGD(0.1)
            local = optimizers.build_local_steps(inner, None, 1, 1.0, 0.0, sync_seconds=1e9)
            model.compile(local, "mse")
        found = []
        keep = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: found.append(model.get_weights()[0])
        )
        x = np.random.default_rng(0).normal(size=[36, 3])
        model.fit(x, x @ START, batch_size=6, verbose=0, callbacks=[keep])
        # Exchanges after 1, 1 and 4 steps.
        average = found[0]
        for n, (step, steps) in enumerate(((1, 1), (5, 4)), start=1):
            decay = min(0.9999**steps, (1 + n) / (10 + n))
            average = decay * average + (1 - decay) * found[step]
        self.assertAllClose(model.get_weights()[0], average, rtol=1e-5)
        self.assertEqual(local.outer.get_config()["ema_momentum"], 0.9999)

    def test_an_optimizer_made_from_its_config_is_equal(self):
        for name in optimizers.available():
            rate = schedules.Constant(0.1)
            optimizer = optimizers.build_optimizer(name, rate, momentum=0.8)
            config = keras.saving.serialize_keras_object(optimizer)
            copy = keras.saving.deserialize_keras_object(config)
            self.assertEqual(copy.get_config(), optimizer.get_config())
            self.assertEqual(copy.get_config()["ema_momentum"], 0.9999)
            for one, two in zip(run(optimizer), run(copy), strict=True):
                self.assertAllEqual(one, two)

    def test_a_saved_optimizer_resumes(self):
        folder = self.get_temp_dir()
        for name in optimizers.available():
            optimizer = optimizers.build_optimizer(name, schedules.Constant(0.1))
            run(optimizer)
            path = tf.train.Checkpoint(optimizer=optimizer).save(f"{folder}/{name}")
            other = optimizers.build_optimizer(name, schedules.Constant(0.1))
            other.build([keras.Variable(START, dtype="float32")])
            tf.train.Checkpoint(optimizer=other).restore(path).assert_consumed()
            for one, two in zip(optimizer.variables, other.variables, strict=True):
                self.assertAllEqual(one.numpy(), two.numpy())

    def test_unknown_names_and_momenta_are_refused(self):
        with self.assertRaisesRegex(ValueError, "`optimizer` must be one of .*'momentum'"):
            optimizers.build_optimizer("momentun", 0.1)
        with self.assertRaisesRegex(ValueError, "`momentum` must be .* Received: momentum=1.5"):
            optimizers.build_optimizer("momentum", 0.1, momentum=1.5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
