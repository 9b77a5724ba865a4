"""`jit_compile=True` under the strategy: XLA compiles each replica's computation."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import DiLoCo, TernGradStrategy
from tests.distribute.samples import data

NUM_EXAMPLES = 44  # The last batch of 16 has 12.


def images():
    return data(NUM_EXAMPLES)


def texts():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 20, (NUM_EXAMPLES, 6))
    return x, (x.sum(1) % 3).astype(np.int32)


def convolutions():
    return [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(4, 3),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.ReLU(),
        keras.layers.Flatten(),
        keras.layers.Dense(3),
    ]


def recurrence():
    return [
        keras.layers.Input((6,), dtype="int32"),
        keras.layers.Embedding(20, 4),
        keras.layers.LSTM(5),
        keras.layers.Dense(3),
    ]


class OnHost(keras.layers.Layer):
    """Computes in Python, which XLA cannot compile."""

    def call(self, x):
        return tf.ensure_shape(tf.py_function(lambda x: x + 1, [x], tf.float32), x.shape)


def sgd(**options):
    return lambda: keras.optimizers.SGD(0.1, momentum=0.9, **options)


def fitted(
    strategy,
    layers,
    examples,
    optimizer=None,
    jit_compile=True,
    epochs=2,
    kind=keras.Sequential,
    **options,
):
    """A trained model and its losses; uses plain Keras without a strategy."""
    keras.utils.set_random_seed(1)
    with (strategy or tf.distribute.get_strategy()).scope():
        model = kind(layers())
        model.compile(
            (optimizer or sgd())(),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"] if kind is keras.Sequential else None,
            jit_compile=jit_compile,
            **options,
        )
    x, y = examples()
    history = model.fit(x, y, batch_size=16, epochs=epochs, shuffle=False, verbose=0)
    return model, history.history


class CompiledStepsTest(tf.test.TestCase, parameterized.TestCase):
    def assert_trained_alike(self, found, expected):
        (model, losses), (other, other_losses) = found, expected
        for a, b in zip(model.weights, other.weights, strict=True):
            self.assertAllClose(a.numpy(), b.numpy(), 1e-3, 1e-4, msg=a.path)
        for name, values in other_losses.items():
            self.assertAllClose(losses[name], values, 1e-3, 1e-4)

    @pytest.mark.slow
    def test_two_replicas_give_plain_keras_numbers(self):
        self.check_plain_keras_numbers(2, recurrence, texts)

    @parameterized.parameters(1, 3)
    @pytest.mark.long
    def test_fewer_and_more_replicas_give_plain_keras_numbers(self, replicas):
        self.check_plain_keras_numbers(replicas, convolutions, images)

    def check_plain_keras_numbers(self, replicas, layers, examples):
        strategy = TernGradStrategy(replicas, grad_bits=32)
        found = fitted(strategy, layers, examples)
        expected = fitted(None, layers, examples)
        self.assert_trained_alike(found, expected)
        x, y = examples()
        (model, _), (plain, _) = found, expected
        losses, wanted = (m.evaluate(x, y, batch_size=16, verbose=0) for m in (model, plain))
        self.assertAllClose(losses, wanted, 1e-3, 1e-4)
        predicted, wanted = (m.predict(x, batch_size=16, verbose=0) for m in (model, plain))
        self.assertAllClose(predicted, wanted, 1e-3, 1e-4)

    @parameterized.named_parameters(
        ("accumulated", sgd(gradient_accumulation_steps=2), {}),
        ("clipped", sgd(global_clipnorm=0.1), {}),
        ("averaged", sgd(use_ema=True, ema_momentum=0.5), {}),
        ("scaled", lambda: keras.optimizers.LossScaleOptimizer(sgd()()), {}),
        ("several_steps_an_execution", sgd(), {"steps_per_execution": 2}),
        ("local_steps", lambda: DiLoCo(sgd()(), sync_every=2), {}),
    )
    @pytest.mark.long
    def test_optimizers_train_as_without_compilation(self, optimizer, options):
        runs = [
            fitted(
                TernGradStrategy(2, grad_bits=32),
                *(convolutions, images, optimizer, jit_compile),
                **options,
            )
            for jit_compile in (True, False)
        ]
        self.assert_trained_alike(*runs)

    @pytest.mark.slow
    def test_xla_compiles_the_layers_and_not_the_exchange(self):
        def layers():
            return [keras.layers.Input((8, 8, 1)), OnHost(), *convolutions()[1:]]

        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "EagerPyFunc|[Uu]nsupported"):
            fitted(TernGradStrategy(2), layers, images)
        fitted(TernGradStrategy(2), layers, images, jit_compile=False)
        # The exchange is the same.
        traffic = []
        for jit_compile in (True, False):
            strategy = TernGradStrategy(2)
            _, history = fitted(strategy, convolutions, images, jit_compile=jit_compile)
            self.assertTrue(np.isfinite(history["loss"]).all())
            traffic.append(strategy.traffic)
        self.assertEqual(*traffic)

    def test_a_loop_that_is_cut_is_refused(self):
        def layers():
            first, *others = recurrence()[:-1]
            normalize = keras.layers.BatchNormalization(synchronized=True)
            return [first, *others, normalize, keras.layers.Dense(3)]

        with self.assertRaisesRegex(ValueError, "^`jit_compile=True` must not .* with a loop"):
            fitted(TernGradStrategy(2), layers, texts)

    def test_a_custom_train_step_is_compiled(self):
        class Own(keras.Sequential):
            def train_step(self, batch):
                x, y = batch
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(x, y, self(x, training=True))
                variables = self.trainable_variables
                self.optimizer.apply(tape.gradient(loss, variables), variables)
                return {"loss": loss, "squared": loss**2}

        def layers():
            return [keras.layers.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(3)]

        found, plain = (
            fitted(strategy, layers, images, kind=Own, epochs=1)
            for strategy in (TernGradStrategy(2, grad_bits=32), None)
        )
        self.assert_trained_alike((found[0], {}), (plain[0], {}))
        self.assertAllClose(found[1]["loss"], plain[1]["loss"], 1e-4)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "EagerPyFunc|[Uu]nsupported"):
            fitted(TernGradStrategy(2), lambda: [*layers(), OnHost()], images, kind=Own)

    def test_a_custom_loop_compiles_the_replicas_function(self):
        strategy = TernGradStrategy(2, grad_bits=32)
        with strategy.scope():
            weight = tf.Variable([1.0, 2.0])
            optimizer = keras.optimizers.SGD(0.5)
            optimizer.build([weight])

        def replica(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight * x) / 2
            optimizer.apply(tape.gradient(loss, [weight]), [weight])
            return loss

        compiled = tf.function(replica, jit_compile=True)

        @tf.function
        def step(x):
            return strategy.reduce("sum", strategy.run(compiled, args=(x,)), axis=None)

        x = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant([1.0, 2.0 + context.replica_id_in_sync_group])
        )
        self.assertAllClose(step(x), (1 + 4) / 2 + (1 + 6) / 2)
        self.assertAllClose(weight, [1 - 0.5, 2 - 0.5 * 2.5])
        self.assertAllClose(strategy.run(compiled, args=(x,)).values[1], (0.5 + 0.75 * 3) / 2)

        # XLA would compile the exchange, too.
        whole = tf.function(lambda x: strategy.run(replica, args=(x,)), jit_compile=True)
        with self.assertRaisesRegex(ValueError, "`jit_compile=True` must not be"):
            whole(x)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
