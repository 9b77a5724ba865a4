"""Tests of `AbsAdam`, Adam that divides by the mean absolute gradient."""

import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import AbsAdam, Quantization, TernGradStrategy

NUM_STEPS = 5


def gradients():
    """float32 `[NUM_STEPS, 4, 3]`; some rows are 0."""
    made = np.random.default_rng(1).normal(size=(NUM_STEPS, 4, 3)).astype(np.float32)
    made[1, 2] = made[3, 0] = 0
    return made


def train(optimizer, steps):
    """Applies gradients to ones, float32 `[4, 3]`, and returns the result."""
    variable = keras.Variable(tf.ones([4, 3]))
    for gradient in steps:
        optimizer.apply([gradient], [variable])
    return variable.numpy()


class AbsAdamTest(tf.test.TestCase, parameterized.TestCase):
    def test_steps_follow_the_formula(self):
        options = {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3}
        weights, mean, size = np.ones([4, 3]), np.zeros([4, 3]), np.zeros([4, 3])
        for t, gradient in enumerate(gradients().astype(np.float64), start=1):
            mean = 0.8 * mean + 0.2 * gradient
            size = 0.95 * size + 0.05 * np.abs(gradient)
            weights -= 0.1 * (mean / (1 - 0.8**t)) / (size / (1 - 0.95**t) + 1e-3)
        trained = train(AbsAdam(0.1, **options), map(tf.constant, gradients()))
        self.assertAllClose(trained, weights, rtol=1e-5, atol=1e-6)

    def test_gradients_of_one_size_give_adams_steps(self):
        steps = [tf.constant(0.3 * np.sign(g)) for g in gradients()[:1]] * NUM_STEPS
        adam = keras.optimizers.Adam(0.1)
        self.assertAllClose(train(AbsAdam(0.1), steps), train(adam, steps), rtol=1e-5)

    def test_rows_give_the_steps_of_whole_tensors(self):
        rows = [
            tf.IndexedSlices(tf.constant(g[:2]), tf.constant([3, 1]), tf.constant([4, 3]))
            for g in gradients()
        ]
        whole = [tf.convert_to_tensor(r) for r in rows]
        self.assertAllClose(train(AbsAdam(0.1), rows), train(AbsAdam(0.1), whole), rtol=1e-6)

    def test_rounding_keeps_the_size_of_a_gradient_and_raises_its_square(self):
        strategy = TernGradStrategy(
            quantization=Quantization(rotate=False, clip_factor=0, min_size=1)
        )
        sizes = np.linspace(-1, 1, 9, dtype=np.float32)
        with strategy.scope():
            variable = tf.Variable(np.zeros([9, 4000], np.float32))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([variable])
        gradient = tf.repeat(sizes[:, None], 4000, axis=1)
        strategy.run(lambda: optimizer.apply([gradient], [variable]))
        rounded = -variable.numpy()
        self.assertAllClose(np.abs(rounded).mean(1), np.abs(sizes), atol=0.03)
        self.assertAllClose(np.square(rounded).mean(1), np.abs(sizes), atol=0.03)

    def test_a_saved_model_continues_as_the_original(self):
        x, y = np.arange(8.0).reshape(8, 1) / 8, np.ones([8, 1])
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile(AbsAdam(0.01, beta_2=0.9, weight_decay=0.1), "mse")
        model.fit(x, y, shuffle=False, verbose=0)
        path = pathlib.Path(self.get_temp_dir()) / "model.keras"
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertEqual(loaded.optimizer.get_config(), model.optimizer.get_config())
        for each in (model, loaded):
            each.fit(x, y, shuffle=False, verbose=0)
        for expected, found in zip(model.get_weights(), loaded.get_weights(), strict=True):
            self.assertAllEqual(found, expected)

    def test_variables_and_checkpoints_have_adams_names(self):
        paths, names = [], []
        for kind in (AbsAdam, keras.optimizers.Adam):
            optimizer = kind(use_ema=True, gradient_accumulation_steps=2, name="same")
            optimizer.build([keras.Variable(tf.ones([2]), name=name) for name in ("v", "w")])
            paths.append([variable.path for variable in optimizer.variables])
            file = tf.train.Checkpoint(optimizer=optimizer).write(f"{self.get_temp_dir()}/x")
            names.append(tf.train.list_variables(file))
        self.assertEqual(*paths)
        self.assertEqual(*names)

    def test_amsgrad_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`amsgrad` must be False. Received: amsgrad=True"):
            AbsAdam(amsgrad=True)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
