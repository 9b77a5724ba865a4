"""Tests of saved optimizers that correct for the noise of rounding."""

import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import Quantization, TernGradStrategy
from tests import runs
from tests.distribute.samples import build, data


def fitted(strategy, epochs=1):
    model = build(strategy, dropout=0.0, optimizer=lambda: keras.optimizers.Adam(0.01))
    fit(model, epochs)
    return model


def fit(model, epochs=1):
    x, y = data(32)
    model.fit(x, y, batch_size=16, epochs=epochs, shuffle=False, verbose=0)


def new(grad_bits=1):
    """An untrained model with the state of its optimizer."""
    strategy = TernGradStrategy(2, grad_bits=grad_bits)
    model = build(strategy, dropout=0.0, optimizer=lambda: keras.optimizers.Adam(0.01))
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
    return model


def state_of(model):
    return [variable.numpy() for variable in model.optimizer.variables]


def averages_of(model):
    return [average.numpy() for average in model.optimizer.rounding_noise.averages]


class SavedNoiseTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = runs.class_folder(type(self))

    def assert_same(self, first, second):
        for a, b in zip(first, second, strict=True):
            self.assertAllEqual(a, b)

    def assert_continues_alike(self, model, resumed):
        """Checks that two models have the same state, now and after further steps."""
        self.assert_same(averages_of(model), averages_of(resumed))
        self.assertGreater(max(np.max(average) for average in averages_of(model)), 0)
        for each in (model, resumed):
            fit(each)
        self.assert_same(model.get_weights(), resumed.get_weights())
        self.assert_same(averages_of(model), averages_of(resumed))

    def test_keras_files_load_with_and_without_a_strategy(self):
        model = fitted(TernGradStrategy(2, quantization=Quantization(rotate=True)))
        path = f"{self.folder}/model.keras"
        weights_path = f"{self.folder}/model.weights.h5"
        model.save(path)
        model.save_weights(weights_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plain = keras.models.load_model(path)
            self.assertFalse(hasattr(plain.optimizer, "rounding_noise"))
            self.assert_same(state_of(model), state_of(plain))
            plain.load_weights(weights_path)
            resumed = fitted(TernGradStrategy(2, quantization=Quantization(rotate=True)))
            resumed.load_weights(weights_path)
        self.assert_continues_alike(model, resumed)

    @pytest.mark.slow
    def test_files_of_plain_keras_have_no_noise(self):
        plain = fitted(tf.distribute.get_strategy())
        path = f"{self.folder}/plain.keras"
        weights_path = f"{self.folder}/plain.weights.h5"
        plain.save(path)
        plain.save_weights(weights_path)
        with TernGradStrategy(2, quantization=Quantization(rotate=True)).scope():
            loaded = keras.models.load_model(path)
        trained = fitted(TernGradStrategy(2, quantization=Quantization(rotate=True)))
        trained.load_weights(weights_path)
        for model in (loaded, trained):
            self.assert_same(state_of(plain), state_of(model))
            for average in averages_of(model):
                self.assertAllEqual(average, np.zeros(average.shape))

    @pytest.mark.slow
    def test_checkpoints_continue_and_may_come_from_plain_keras(self):
        def checkpoint(model):
            return tf.train.Checkpoint(model=model, optimizer=model.optimizer)

        model = fitted(TernGradStrategy(2, quantization=Quantization(rotate=True)))
        path = checkpoint(model).write(f"{self.folder}/ours")
        resumed = new()
        checkpoint(resumed).read(path).assert_consumed()
        self.assert_continues_alike(model, resumed)
        plain = fitted(tf.distribute.get_strategy())
        checkpoint(plain).read(path).assert_existing_objects_matched()
        plain_path = checkpoint(plain).write(f"{self.folder}/plain")
        fresh = new()
        checkpoint(fresh).read(plain_path).assert_consumed()
        self.assert_same(state_of(plain), state_of(fresh))
        fit(fresh)

    @pytest.mark.slow
    def test_a_run_that_chose_floats_passes_on_no_earlier_noise(self):
        model = fitted(TernGradStrategy(2))
        path, checkpoint_path = f"{self.folder}/float.weights.h5", f"{self.folder}/float"
        model.save_weights(path)
        # A single process takes floats.
        of_floats = new(grad_bits="auto")
        of_floats.load_weights(path)
        self.assert_same(averages_of(model), averages_of(of_floats))
        fit(of_floats)
        of_floats.save_weights(path)
        checkpoint = tf.train.Checkpoint(model=of_floats, optimizer=of_floats.optimizer)
        checkpoint_path = checkpoint.write(checkpoint_path)
        from_file, from_checkpoint = new(), new()
        from_file.load_weights(path)
        checkpoint = tf.train.Checkpoint(model=from_checkpoint, optimizer=from_checkpoint.optimizer)
        checkpoint.read(checkpoint_path).assert_existing_objects_matched()
        for resumed in (from_file, from_checkpoint):
            self.assert_same(state_of(of_floats), state_of(resumed))
            for average in averages_of(resumed):
                self.assertAllEqual(average, np.zeros(average.shape))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
