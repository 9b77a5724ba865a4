"""Tests of Keras optimizers on `tf.Variable`s: modules, saved models and custom loops."""

import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import Quantization, TernaryAllReduce, TernGradStrategy
from tests.distribute import strategy_options

NUM_REPLICAS = 2
OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "decay, clipping and average": lambda: keras.optimizers.AdamW(
        0.05, weight_decay=0.1, clipvalue=0.3, use_ema=True, ema_overwrite_frequency=2
    ),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05)),
}


def mirrored(**options):
    devices = [f"CPU:{i}" for i in range(NUM_REPLICAS)]
    return tf.distribute.MirroredStrategy(
        devices, TernaryAllReduce(**strategy_options.arguments(**options))
    )


class Line(tf.Module):
    """y = x w + b."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable([[1.0], [-2.0]], name="w")
        self.b = tf.Variable([0.5], name="b")

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, x):
        return x @ self.w + self.b


def train(strategy, module, optimizer, steps=3):
    """Trains on 8 examples a step in a custom loop; returns the weights."""
    x = np.random.default_rng(0).standard_normal((8, 2)).astype(np.float32)
    batches = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(8)

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(tf.square(module(x) - y)[:, 0], global_batch_size=8)
            loss = optimizer.scale_loss(loss)
        variables = module.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    @tf.function
    def step(batch):
        strategy.run(replica, args=batch)

    for batch in strategy.experimental_distribute_dataset(batches.repeat(steps)):
        step(batch)
    return [v.numpy() for v in module.trainable_variables]


class PlainVariablesTest(tf.test.TestCase):
    def make(self, strategy, optimizer):
        with strategy.scope():
            return Line(), OPTIMIZERS[optimizer]()

    @pytest.mark.long
    def test_float_gradients_train_modules_as_one_device_does(self):
        for name in OPTIMIZERS:
            stock = tf.distribute.get_strategy()
            expected = train(stock, *self.make(stock, name))
            for strategy in (
                TernGradStrategy(1, grad_bits=32),
                TernGradStrategy(NUM_REPLICAS, grad_bits=32),
                mirrored(grad_bits=32),
            ):
                got = train(strategy, *self.make(strategy, name))
                for a, b in zip(got, expected, strict=True):
                    self.assertAllClose(a, b, msg=name)

    @pytest.mark.long
    def test_ternary_gradients_train_modules_alike_on_both_strategies(self):
        for name in OPTIMIZERS:
            runs = [
                train(strategy, *self.make(strategy, name))
                for strategy in (TernGradStrategy(NUM_REPLICAS), mirrored())
            ]
            for a, b in zip(*runs, strict=True):
                self.assertAllClose(a, b, msg=name)

    def test_an_optimizer_from_outside_the_scope_is_refused(self):
        # Stock strategies would count one step per replica, or report mixed strategies.
        for strategy in (TernGradStrategy(NUM_REPLICAS), mirrored()):
            for make in (keras.optimizers.SGD, keras.optimizers.Adam, OPTIMIZERS["loss scale"]):
                with strategy.scope():
                    module = Line()
                    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
                optimizer = make()

                def fit(model=model, optimizer=optimizer):
                    model.compile(optimizer, "mse")
                    model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0)

                for call in (lambda s=strategy, m=module, o=optimizer: train(s, m, o), fit):
                    with self.assertRaisesRegex(ValueError, "outside of the scope of the strategy"):
                        call()

    def test_saved_models_are_loaded_and_trained(self):
        path = os.path.join(self.get_temp_dir(), "saved")
        tf.saved_model.save(Line(), path)
        results = []
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(2, grad_bits=32)):
            with strategy.scope():
                module, optimizer = tf.saved_model.load(path), keras.optimizers.SGD(0.05)
            module.trainable_variables = [module.w, module.b]
            results.append(train(strategy, module, optimizer))
        for a, b in zip(*results, strict=True):
            self.assertAllClose(a, b)

    def test_statistics_and_logits_use_the_variables_names(self):
        strategy = TernGradStrategy(
            2, statistics_freq=1, quantization=Quantization(quantize_logits=False)
        )
        with strategy.scope():
            variables = [tf.Variable(tf.zeros([5]), name=name) for name in ("logits", "v", "v")]
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build(variables)

        @tf.function
        def step():
            strategy.run(lambda: optimizer.apply([tf.ones([5])] * 3, variables))

        step()
        self.assertCountEqual(strategy.gradient_statistics, ["v", "v_1"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
