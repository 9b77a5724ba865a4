"""Tests of stock Keras training under the strategy, on one process."""

import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import Quantization, TernaryAllReduce, TernGradStrategy
from tests.distribute.samples import build, data

NUM_REPLICAS = 4


def weights(model):
    return [v.numpy() for v in model.weights + model.optimizer.variables]


class FitTest(tf.test.TestCase):
    def tearDown(self):
        keras.mixed_precision.set_global_policy("float32")
        super().tearDown()

    def assert_replicas_equal(self, model):
        for variable in model.variables + model.optimizer.variables:
            for component in variable.value.values[1:]:
                np.testing.assert_array_equal(
                    component.numpy(), variable.value.values[0].numpy(), err_msg=variable.path
                )

    def assert_same(self, first, second):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)

    def fit(self, strategy=None, examples=data, epochs=2, batch_size=64, **options):
        model = build(strategy or TernGradStrategy(NUM_REPLICAS), **options)
        history = model.fit(*examples(), batch_size=batch_size, epochs=epochs, verbose=0)
        self.assertTrue(np.isfinite(history.history["loss"]).all())
        return model

    def test_replicas_are_equal_with_batch_norm_and_uneven_batches(self):
        # 130 examples in batches of 64: the last batch leaves two of the four replicas without any.
        self.assert_replicas_equal(self.fit())

    @pytest.mark.long
    def test_training_is_repeatable(self):
        self.assert_same(weights(self.fit()), weights(self.fit()))

    @pytest.mark.slow
    def test_eager_steps_and_several_steps_an_execution_give_the_same(self):
        runs = [
            weights(self.fit(TernGradStrategy(NUM_REPLICAS, grad_bits=32), dropout=0.0, **options))
            for options in ({}, {"steps_per_execution": 3}, {"run_eagerly": True})
        ]
        for other in runs[1:]:
            for a, b in zip(runs[0], other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    def test_moving_statistics_are_the_mean_of_the_replicas(self):
        """Compares one step on known batches with batch norm written out."""
        strategy = TernGradStrategy(2, grad_bits=32)
        with strategy.scope():
            layer = keras.layers.BatchNormalization(momentum=0.5)
            model = keras.Sequential([keras.layers.Input((3,)), layer, keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        x = np.random.default_rng(0).random((8, 3)).astype(np.float32)
        model.fit(x, np.zeros((8, 1)), batch_size=8, shuffle=False, verbose=0)
        halves = x[:4].astype(np.float64), x[4:].astype(np.float64)
        mean = np.mean([0.5 * half.mean(0) for half in halves], axis=0)
        variance = np.mean([0.5 + 0.5 * half.var(0) for half in halves], axis=0)
        np.testing.assert_allclose(layer.moving_mean.numpy(), mean, rtol=1e-5)
        np.testing.assert_allclose(layer.moving_variance.numpy(), variance, rtol=1e-5)

    @pytest.mark.slow
    def test_evaluate_counts_every_example_once(self):
        model = self.fit()
        x, y = data()
        logits = model.predict(x, batch_size=64, verbose=0)
        self.assertEqual(logits.shape, (130, 3))
        expected_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, logits)
        expected_accuracy = np.mean(logits.argmax(1) == y)
        for batch_size in (130, 129, 43, 64, 1):
            loss, accuracy = model.evaluate(x, y, batch_size=batch_size, verbose=0)
            self.assertNear(loss, float(expected_loss), 1e-5)
            self.assertNear(accuracy, expected_accuracy, 1e-6)
            again = model.predict(x, batch_size=batch_size, verbose=0)
            np.testing.assert_allclose(again, logits, rtol=1e-4, atol=1e-5)

    def test_sequences_of_unknown_length_may_leave_replicas_without_examples(self):
        with TernGradStrategy(NUM_REPLICAS).scope():
            model = keras.Sequential(
                [
                    keras.layers.Input((None, 3)),
                    keras.layers.GlobalAveragePooling1D(),
                    keras.layers.Dense(1),
                ]
            )
            model.compile("sgd", "mse")
        batches = tf.data.Dataset.from_generator(
            lambda: ((np.ones((n, n, 3)), np.ones((n, 1))) for n in (5, 4, 2)),
            output_signature=(
                tf.TensorSpec([None, None, 3], tf.float32),
                tf.TensorSpec([None, 1], tf.float32),
            ),
        )
        model.fit(batches, verbose=0)
        self.assert_replicas_equal(model)
        self.assertTrue(np.isfinite(model.evaluate(batches, verbose=0)))

    @pytest.mark.slow
    def test_synchronized_batch_norm_is_exact(self):
        """Only gradients may differ from the float run's."""
        runs = {}
        for bits in (1, 32):
            strategy = TernGradStrategy(NUM_REPLICAS, grad_bits=bits)
            model = build(
                strategy,
                synchronized=True,
                dropout=0.0,
                optimizer=lambda: keras.optimizers.SGD(0.0),
            )
            model.fit(*data(128), batch_size=64, shuffle=False, verbose=0)
            runs[bits] = weights(model)
        self.assert_same(runs[1], runs[32])

    @pytest.mark.slow
    def test_float_mode_equals_stock_mirrored_strategy(self):
        devices = [f"CPU:{i}" for i in range(NUM_REPLICAS)]
        examples = lambda: data(128)  # noqa: E731
        stock = tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())
        wrapped = tf.distribute.MirroredStrategy(devices, TernaryAllReduce(grad_bits=32))
        runs = [
            self.fit(strategy, examples, dropout=0.0)
            for strategy in (stock, wrapped, TernGradStrategy(NUM_REPLICAS, grad_bits=32))
        ]
        trainable = [[v.numpy() for v in model.trainable_variables] for model in runs]
        for other in trainable[1:]:
            for a, b in zip(trainable[0], other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    @pytest.mark.slow
    def test_gradient_accumulation_moves_the_weights_every_second_step_only(self):
        optimizer = lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)  # noqa: E731
        model = build(TernGradStrategy(NUM_REPLICAS), optimizer=optimizer)
        x, y = data(64)
        before = model.trainable_variables[0].numpy()
        model.fit(x, y, batch_size=64, verbose=0)
        np.testing.assert_array_equal(before, model.trainable_variables[0].numpy())
        model.fit(x, y, batch_size=64, verbose=0)
        self.assertNotAllEqual(before, model.trainable_variables[0].numpy())
        self.assert_replicas_equal(model)

    @pytest.mark.slow
    def test_averaged_weights_are_kept_and_written_over(self):
        def optimizer():
            return keras.optimizers.SGD(
                0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3
            )

        model = self.fit(optimizer=optimizer, epochs=1)
        self.assert_replicas_equal(model)
        # The last of three steps wrote the average over the weights.
        average = model.optimizer._model_variables_moving_average[0].numpy()
        np.testing.assert_array_equal(model.trainable_variables[0].numpy(), average)

    @pytest.mark.slow
    def test_mixed_precision_skips_the_step_if_any_replica_overflows(self):
        keras.mixed_precision.set_global_policy("mixed_float16")
        for bits in (1, 32):
            model = build(TernGradStrategy(NUM_REPLICAS, grad_bits=bits), dropout=0.0)
            self.assertIsInstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
            x, y = data(64)
            model.fit(x, y, batch_size=64, verbose=0)
            self.assertEqual(int(model.optimizer.iterations.numpy()), 1)
            before = [v.numpy() for v in model.trainable_variables]
            scale = float(model.optimizer.dynamic_scale.numpy())
            x[40] = 1e9  # On the third replica only.
            model.fit(x, y, batch_size=64, shuffle=False, verbose=0)
            self.assertEqual(int(model.optimizer.iterations.numpy()), 1)
            self.assertEqual(float(model.optimizer.dynamic_scale.numpy()), scale / 2)
            self.assert_same(before, [v.numpy() for v in model.trainable_variables])

    @pytest.mark.long
    def test_every_keras_optimizer_trains(self):
        for name in ("Adam", "AdamW", "RMSprop", "Adagrad", "Lion"):
            optimizer = lambda name=name: getattr(keras.optimizers, name)(1e-3)  # noqa: E731
            self.assert_replicas_equal(self.fit(optimizer=optimizer, epochs=1))

    @pytest.mark.slow
    def test_two_optimizers_in_one_step(self):
        strategy = TernGradStrategy(2, quantization=Quantization(rotate=False))
        with strategy.scope():
            variables = [keras.Variable(tf.zeros([50]), name=name) for name in "ab"]
            optimizers = [keras.optimizers.SGD(1.0), keras.optimizers.Adam(0.1)]
            for optimizer, variable in zip(optimizers, variables, strict=True):
                optimizer.build([variable])

        @tf.function
        def step():
            def replica():
                for optimizer, variable in zip(optimizers, variables, strict=True):
                    optimizer.apply([tf.ones([50])], [variable])

            strategy.run(replica)

        step()
        np.testing.assert_allclose(variables[0].numpy(), -2.0)
        np.testing.assert_allclose(variables[1].numpy(), -0.1, rtol=1e-4)

    def test_a_function_given_to_run_keeps_statistics_equal_on_every_call(self):
        strategy = TernGradStrategy(2)
        with strategy.scope():
            statistic = keras.Variable(0.0, trainable=False, name="moving")

        @tf.function
        def replica():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            # A mean over the replica's only example.
            statistic.assign_add(tf.reduce_mean(tf.fill([1], tf.cast(replica, tf.float32))))

        for call in range(1, 4):
            strategy.run(replica)
            self.assertAllEqual([v.numpy() for v in statistic.value.values], [call / 2] * 2)

    @pytest.mark.slow
    def test_resume_from_each_kind_of_file_is_exact(self):
        # One batch holds all examples, so their order is the same in every run.
        examples = lambda: data(64)  # noqa: E731
        folder = self.get_temp_dir()
        model = self.fit(examples=examples, dropout=0.0)
        model.save(os.path.join(folder, "model.keras"))
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        path = checkpoint.save(os.path.join(folder, "checkpoint"))
        with TernGradStrategy(NUM_REPLICAS).scope():
            loaded = keras.models.load_model(os.path.join(folder, "model.keras"))
        strategy = TernGradStrategy(NUM_REPLICAS)
        restored = build(strategy, dropout=0.0)
        with strategy.scope():
            restored.optimizer.build(restored.trainable_variables)
        tf.train.Checkpoint(model=restored, optimizer=restored.optimizer).restore(path)
        for resumed in (model, loaded, restored):
            resumed.fit(*examples(), batch_size=64, epochs=2, shuffle=False, verbose=0)
        self.assertEqual(int(model.optimizer.iterations.numpy()), 4)
        self.assert_same(weights(restored), weights(model))
        self.assert_same(weights(loaded), weights(model))

    @pytest.mark.slow
    def test_learning_happens(self):
        x, y = data(256)
        model = build(TernGradStrategy(NUM_REPLICAS), dropout=0.0)
        history = model.fit(x, y, batch_size=64, epochs=15, verbose=0).history["loss"]
        self.assertLess(history[-1], 0.8 * history[0])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
