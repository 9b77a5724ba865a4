"""`DiLoCo`: replicas take separate steps; compared with plain Keras models trained apart."""

import os
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import terngrad_tf
from terngrad_tf import DiLoCo
from tests import runs
from tests.distribute import processes
from tests.distribute.local_sgd.local_steps_cases import (
    NUM_FEATURES,
    ResumeCases,
    adamw,
    data,
    fit_steps,
    nesterov,
    network,
    trained,
    trained_apart,
)

WORKER = pathlib.Path(__file__).with_name("local_steps_worker.py")
SGD = keras.optimizers.SGD


class Adversaries(keras.Model):
    """Two networks, each with an optimizer of its own, which are attributes of the model."""

    def __init__(self, make):
        super().__init__()
        self.nets = [network(), network()]
        self.optimizers = {"of nets": [make() for _ in self.nets]}
        for optimizer, net in zip(self.optimizers["of nets"], self.nets, strict=True):
            optimizer.build(net.trainable_variables)

    def call(self, x):
        return self.nets[0](x)

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape(persistent=True) as tape:
            first, second = (net(x, training=True) for net in self.nets)
            losses = [self.compute_loss(y=p, y_pred=first - second) for p in (y, -y)]
        steps = zip(self.optimizers["of nets"], self.nets, losses, strict=True)
        for optimizer, net, loss in steps:
            gradients = tape.gradient(loss, net.trainable_variables)
            optimizer.apply(gradients, net.trainable_variables)
        return {"loss": losses[0]}


class EqualsTest(ResumeCases, parameterized.TestCase, tf.test.TestCase):
    """Numbers with float exchanges."""

    def assert_equal_weights(self, model, expected):
        for weight, value in zip(model.weights, expected, strict=True):
            self.assertAllClose(weight.numpy(), value, rtol=2e-5, atol=2e-6, msg=weight.path)

    @parameterized.parameters(
        ({"sync_every": 1}, 0.0),
        ({"sync_every": 16}, 0.0),
        ({"sync_every": 20}, 0.2),
        ({}, 0.5),
        ({"sync_every": 500}, 0.5),
        ({"sync_seconds": 1.0}, 0.5),
    )
    def test_outer_momentum_suits_the_steps_between_exchanges(self, options, momentum):
        outer = DiLoCo(SGD(0.1), **options).outer
        self.assertAlmostEqual(outer.momentum, momentum)
        self.assertEqual((float(outer.learning_rate), outer.nesterov), (1.0, momentum > 0))

    def test_each_step_with_plain_sgd_is_synchronous_training(self):
        synchronous = trained(lambda: SGD(0.1), 4)
        local = trained(lambda: DiLoCo(SGD(0.1), 1, outer=SGD(1.0)), 4)
        self.assert_equal_weights(local, [w.numpy() for w in synchronous.weights])

    def test_replicas_train_as_models_apart(self):
        self.check_apart(3, 2, batch_norm=False)
        self.check_apart(2, 32, batch_norm=True)

    @parameterized.parameters(1, 3)
    @pytest.mark.long
    def test_other_numbers_of_replicas_train_as_models_apart(self, num_replicas):
        self.check_apart(num_replicas, num_replicas + 1, batch_norm=True)

    @pytest.mark.slow
    def test_a_step_follows_the_mean_over_a_replicas_own_examples(self):
        """As in several processes, which do not know each other's number of examples."""
        self.check_apart(2, 3, batch_norm=False, num_examples=41)

    def test_an_own_step_with_tensorflows_average_follows_that_mean_too(self):
        class OwnAverage(keras.Sequential):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    errors = tf.reduce_mean(tf.square(y - self(x, training=True)), -1)
                    loss = tf.nn.compute_average_loss(errors)
                self.optimizer.apply(tape.gradient(loss, self.trainable_variables))
                return {"loss": loss}

        x, y = np.ones([7, 2], np.float32), np.arange(7, dtype=np.float32).reshape(7, 1)
        results = []
        for kind in (OwnAverage, keras.Sequential):
            with terngrad_tf.TernGradStrategy(2, grad_bits=32).scope():
                model = kind([keras.Input([2]), keras.layers.Dense(1, kernel_initializer="ones")])
                model.compile(DiLoCo(keras.optimizers.SGD(0.1), sync_every=2), "mse")
            model.fit(x, y, batch_size=7, epochs=2, verbose=0)
            results.append(model.get_weights())
        self.assertAllClose(*results)

    def check_apart(self, num_replicas, sync_every, batch_norm, num_examples=48):
        """Replicas train like separate Keras models whose changes are exchanged."""
        model = trained(
            lambda: DiLoCo(adamw(), sync_every, outer=nesterov()),
            num_replicas,
            batch_norm=batch_norm,
            num_examples=num_examples,
        )
        options = {"batch_norm": batch_norm, "num_examples": num_examples}
        expected = trained_apart(adamw, nesterov, num_replicas, sync_every, **options)
        self.assert_equal_weights(model, expected)
        self.assertEqual(model.optimizer.iterations.numpy(), 12)

    def test_the_end_of_data_of_unknown_length_is_no_step(self):
        self.check_unknown_length(lambda: DiLoCo(adamw(), 5, outer=nesterov()))

    @parameterized.parameters(
        adamw,
        lambda: DiLoCo(adamw(), 10, outer=nesterov(), fragments=2, overlap=1),
    )
    @pytest.mark.long
    def test_with_other_optimizers_the_end_of_data_is_no_step(self, optimizer):
        self.check_unknown_length(optimizer)

    def check_unknown_length(self, optimizer):
        """Each epoch has 4 steps; a fifth would count, and exchange."""
        expected = trained(optimizer, 2)
        got = trained(optimizer, 2, is_of_known_length=False)
        self.assert_same_state(got, expected)


class VisibleTest(parameterized.TestCase, tf.test.TestCase):
    """Effects of a run that are visible outside its steps."""

    def test_weights_change_in_exchanges_only(self):
        seen = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                seen.append(self.model.get_weights())

        trained(lambda: DiLoCo(SGD(0.1), 3), 2, fit={"callbacks": [Look()], "epochs": 2})
        changes = [
            not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
            for before, after in zip(seen[:-1], seen[1:], strict=True)
        ]
        # Steps 2 to 8; the exchange at the end of an epoch of 4 steps shows in the next step.
        self.assertEqual(changes, [False, True, False, True, False, True, False])

    def test_exchanged_changes_are_ternary(self):
        weights = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                weights.append(self.model.get_weights())

        trained(
            lambda: DiLoCo(SGD(0.1), 4, outer=SGD(1.0)),
            2,
            grad_bits=1,
            rotate=False,
            fit={"callbacks": [Look()], "epochs": 2},
        )
        for before, after in zip(weights[3], weights[4], strict=True):
            # Means over 2 replicas of -s, 0 and s lie at equal distances.
            levels = np.unique(np.round(np.abs(after - before), 6))
            self.assertLessEqual(len(levels), 3)
        self.assertNotAllClose(weights[3][0], weights[4][0])

    @pytest.mark.slow
    def test_validation_and_saving_see_the_weights_of_all(self):
        seen = {}

        class Look(keras.callbacks.Callback):
            def on_test_begin(self, logs=None):
                seen["test"] = self.model.get_weights()

            def on_epoch_end(self, epoch, logs=None):
                seen["end"] = self.model.get_weights()

        model = trained(
            lambda: DiLoCo(SGD(0.1), 100),
            2,
            fit={"callbacks": [Look()], "epochs": 1, "validation_data": data(8, seed=1)},
        )
        start = network().get_weights()
        for first, test, end, final in zip(
            start, seen["test"], seen["end"], model.get_weights(), strict=True
        ):
            self.assertNotAllClose(first, test)
            self.assertAllEqual(test, end)
            self.assertAllEqual(test, final)

    def test_loaded_weights_are_trained(self):
        strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=32)
        with strategy.scope():
            model = network()
            model.compile(DiLoCo(SGD(0.0), 2, outer=SGD(1.0)), "mse")
        x, y = data(8)
        model.fit(x, y, batch_size=4, verbose=0)
        loaded = [w + 1 for w in model.get_weights()]
        model.set_weights(loaded)
        model.fit(x, y, batch_size=4, verbose=0)
        self.assertAllClose(model.get_weights(), loaded, rtol=0, atol=0)

    @pytest.mark.long
    def test_a_recompiled_optimizer_trains_the_visible_weights(self):
        def fit(optimizers):
            strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=32)
            with strategy.scope():
                model = network()
                kept = [optimizer() for optimizer in optimizers]
            for optimizer in (*kept, kept[0]):
                model.compile(optimizer, "mse")
                model.fit(*data(12), batch_size=4, shuffle=False, verbose=0)
            return model.get_weights()

        plain = fit([lambda: SGD(0.1), lambda: SGD(0.2)])
        for local in (
            [lambda: DiLoCo(SGD(0.1), 1, outer=SGD(1.0)), lambda: SGD(0.2)],
            [lambda: SGD(0.1), lambda: DiLoCo(SGD(0.2), 1, outer=SGD(1.0))],
        ):
            self.assertAllClose(fit(local), plain, rtol=1e-5, atol=1e-6)


class OptionsTest(parameterized.TestCase, tf.test.TestCase):
    """Other ways to train."""

    @pytest.mark.long
    def test_steps_per_execution(self):
        one, several = (
            trained(
                lambda: DiLoCo(adamw(), 3),
                2,
                grad_bits=1,
                compile_options={"steps_per_execution": n},
            )
            for n in (1, 2)
        )
        self.assertAllEqual(one.get_weights()[0], several.get_weights()[0])

    def test_run_eagerly(self):
        graph, eager = (
            trained(
                lambda: DiLoCo(SGD(0.1, momentum=0.5), 3),
                2,
                compile_options={"run_eagerly": eagerly},
                # The last batch does not divide evenly.
                num_examples=41,
                fit={"epochs": 1},
            )
            for eagerly in (False, True)
        )
        self.assertAllClose(graph.get_weights(), eager.get_weights(), rtol=1e-5, atol=1e-6)

    def test_each_replica_accumulates_its_own_gradients(self):
        def inner():
            return SGD(0.1, gradient_accumulation_steps=2)

        model = trained(lambda: DiLoCo(inner(), 4, outer=SGD(1.0)), 2)
        expected = trained_apart(inner, lambda: SGD(1.0), 2, 4)
        self.assertAllClose(model.get_weights(), expected, rtol=2e-5, atol=2e-6)

    def test_moving_average_covers_the_exchanged_weights(self):
        averages = []

        class Look(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                averages.append(self.model.get_weights()[0])

        model = trained(
            lambda: DiLoCo(SGD(0.1), 4, outer=SGD(1.0, use_ema=True, ema_momentum=0.5)),
            2,
            fit={"callbacks": [Look()]},
        )
        # Keras' average begins with the weights after the first update.
        expected = averages[0]
        for weights in averages[1:]:
            expected = 0.5 * expected + 0.5 * weights
        self.assertAllClose(model.get_weights()[0], expected, rtol=1e-5, atol=1e-6)
        self.assertNotAllClose(expected, averages[-1])

    def test_loss_scaling_skips_a_step_on_all_replicas(self):
        strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=32)
        with strategy.scope():
            model = network()
            optimizer = keras.optimizers.LossScaleOptimizer(
                DiLoCo(SGD(0.1), 2, outer=SGD(1.0)), initial_scale=8.0
            )
            model.compile(optimizer, "mse", auto_scale_loss=False)
        x, y = data(16)
        x[5] = np.inf
        model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
        self.assertEqual(optimizer.inner_optimizer.iterations.numpy(), 3)
        self.assertAllClose(optimizer.dynamic_scale.numpy(), 4.0)
        self.assertAllEqual(np.isfinite(model.get_weights()[0]), np.ones([NUM_FEATURES, 5], bool))

    def test_sparse_gradients(self):
        def model_of(optimizer, num_nodes):
            strategy = terngrad_tf.TernGradStrategy(num_nodes=num_nodes, grad_bits=32)
            with strategy.scope():
                model = keras.Sequential(
                    [
                        keras.Input([2], dtype="int32"),
                        keras.layers.Embedding(7, 3, embeddings_initializer="ones"),
                        keras.layers.Flatten(),
                        keras.layers.Dense(1, kernel_initializer="ones"),
                    ]
                )
                model.compile(optimizer(), "mse")
            x = np.arange(24).reshape(12, 2) % 7
            model.fit(x, np.arange(12.0), batch_size=4, shuffle=False, verbose=0)
            return model.get_weights()

        synchronous = model_of(lambda: SGD(0.01), 2)
        local = model_of(lambda: DiLoCo(SGD(0.01), 1, outer=SGD(1.0)), 2)
        self.assertAllClose(local, synchronous, rtol=1e-5, atol=1e-6)

    @pytest.mark.slow
    def test_changes_of_a_replica_without_examples_count(self):
        """Their last batch precedes an exchange in the same step or at the epoch's end."""

        def model(sync_every):
            return trained(
                lambda: DiLoCo(SGD(0.1), sync_every, outer=SGD(1.0)),
                4,
                num_examples=14,
                fit={"batch_size": 4, "epochs": 1},
            )

        in_step, after = model(4), model(100)
        self.assertAllClose(in_step.get_weights(), after.get_weights(), rtol=1e-5, atol=1e-6)

    def test_a_model_that_holds_its_optimizers(self):
        # Both replicas learn from the same examples, and the epoch ends between two exchanges.
        x, y = ([np.tile(part, [2, 1]) for part in np.split(array, 3)] for array in data(12))
        x, y = np.concatenate(x), np.concatenate(y)

        def weights(strategy, make):
            with strategy.scope():
                model = Adversaries(make)
                model.compile(loss="mse")
            model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
            trained = model.get_weights()
            # Keras' own step trains all weights with `model.optimizer`, whatever else it holds.
            net = model.nets[0]
            net.former = model.optimizers["of nets"][0]
            with strategy.scope():
                net.compile(SGD(0.1), "mse")
            net.fit(x, y, batch_size=8, shuffle=False, verbose=0)
            return trained + net.get_weights()

        strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=32)
        local = weights(strategy, lambda: DiLoCo(SGD(0.1), 100, outer=SGD(1.0)))
        plain = weights(tf.distribute.get_strategy(), lambda: SGD(0.1))
        self.assertAllClose(local, plain, rtol=1e-5, atol=1e-6)

    def test_a_custom_loop(self):
        strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=32)
        with strategy.scope():
            model = network()
            optimizer = DiLoCo(adamw(), 4, outer=nesterov())
            optimizer.build(model.trainable_variables)
        x, y = data(48)

        @tf.function
        def step(x, y):
            def replica_step(x, y):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((model(x, training=True) - y) ** 2) / 2
                grads = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

            strategy.run(replica_step, args=(x, y))

        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(12)
        for _ in range(3):
            for batch in strategy.experimental_distribute_dataset(dataset):
                step(*batch)
        expected = trained_apart(adamw, nesterov, 2, 4)
        self.assertAllClose(model.get_weights(), expected, rtol=2e-5, atol=2e-6)


class ResumeTest(ResumeCases, parameterized.TestCase, tf.test.TestCase):
    """Runs that stop between two exchanges and continue, equal to the bit."""

    def compiled(self):
        strategy = terngrad_tf.TernGradStrategy(
            num_nodes=2, quantization=terngrad_tf.Quantization(rotate=False, clip_factor=0)
        )
        with strategy.scope():
            model = network(batch_norm=True)
            model.compile(DiLoCo(adamw(), 4, outer=SGD(0.7, momentum=0.9, use_ema=True)), "mse")
        return strategy, model

    @pytest.mark.long
    def test_between_two_exchanges_from_a_keras_file(self):
        self.test_between_two_exchanges("keras")

    def test_between_two_exchanges(self, kind="checkpoint"):
        self.assert_goes_on(kind, 6, 11)

    @pytest.mark.slow
    def test_a_saved_model_loads_without_a_strategy(self):
        path = os.path.join(self.get_temp_dir(), "saved.keras")
        _, model = self.compiled()
        fit_steps(model, 0, 5)
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertAllEqual(loaded.get_weights()[0], model.get_weights()[0])
        self.assertEqual(loaded.optimizer.sync_every, 4)

    @pytest.mark.long
    def test_a_model_saved_between_exchanges_evaluates_without_a_strategy(self):
        path = os.path.join(self.get_temp_dir(), "saved.keras")
        _, model = self.compiled()
        callback = keras.callbacks.LambdaCallback
        save = callback(on_train_batch_end=lambda batch, logs: model.save(path))
        fit_steps(model, 0, 1, [save])
        loaded = keras.models.load_model(path)
        self.assertEqual(loaded.optimizer.steps_since_exchange, 1)
        x, y = data(12)
        expected = np.mean((loaded.predict(x, verbose=0) - y) ** 2)
        self.assertAllClose(loaded.evaluate(x, y, verbose=0), expected, rtol=1e-5)


@pytest.mark.slow
class ProcessesTest(tf.test.TestCase):
    """Two processes of one replica each."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.results = processes.run(
            WORKER,
            2,
            runs.class_folder(cls),
            jobs={
                "float": {"grad_bits": 32},
                "ternary": {"grad_bits": 1},
                "overlapping": {"grad_bits": 32, "fragments": 2, "overlap": 2},
                "resume": {},
                "unknown_length": {},
                "own_step": {},
                "waits": {},
            },
        )

    def test_a_process_runs_ahead_between_exchanges(self):
        """Otherwise the first steps would wait for each other forever."""
        first, second = (result["ternary"] for result in self.results)
        for name in first:
            self.assertAllEqual(first[name], second[name], msg=name)

    def test_the_end_of_data_of_unknown_length_is_no_step(self):
        for result in self.results:
            numbers = result["unknown_length"]
            self.assertAllEqual(numbers["known"], numbers["unknown"])

    def test_an_epochs_logs_are_those_of_its_last_step(self):
        for result in self.results:
            self.assertAllEqual(result["own_step"]["number"], [4, 8, 12])
            self.assertAllEqual(result["own_step"]["time"], [4, 8, 12])

    def test_waits_are_of_a_step_and_not_of_an_exchange(self):
        for result in self.results:
            self.assertBetween(result["waits"]["waits"], 0.0, result["waits"]["seconds"])

    def test_processes_train_as_models_apart(self):
        expected = trained_apart(adamw, nesterov, 2, 4, batch_norm=True, epoch_lengths=[6, 6])
        for index, weight in enumerate(expected):
            self.assertAllClose(self.results[0]["float"][str(index)], weight, rtol=2e-5, atol=2e-6)

    def test_groups_are_exchanged_in_turn(self):
        expected = trained_apart(
            *(adamw, nesterov, 2, 4),
            groups=[[0], [1, 2, 3, 4, 5]],
            overlap=2,
            batch_norm=True,
            epoch_lengths=[6, 6],
        )
        for index, weight in enumerate(expected):
            first, second = (result["overlapping"][str(index)] for result in self.results)
            self.assertAllEqual(first, second)
            self.assertAllClose(first, weight, rtol=2e-5, atol=2e-6)

    def test_a_run_that_stopped_in_an_exchange_continues_exactly(self):
        for result in self.results:
            self.assertTrue(all(result["resume"]["first"]))
            for index in range(8):
                self.assertAllEqual(
                    result["resume"][f"undisturbed/{index}"], result["resume"][f"resumed/{index}"]
                )


class ErrorsTest(parameterized.TestCase, tf.test.TestCase):
    """Refused options and calls."""

    @parameterized.parameters(
        ({"sync_every": 0}, "`sync_every` must be a positive integer.*0"),
        ({"inner": SGD(0.1, use_ema=True)}, "`inner` must have no moving average"),
        ({"outer": SGD(0.1, gradient_accumulation_steps=2)}, "`outer` must have no gradient_acc"),
        ({"inner": keras.optimizers.LossScaleOptimizer(SGD(0.1))}, "`inner` must be an optimizer"),
    )
    def test_options(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            DiLoCo(**{"inner": "sgd", **options})

    def test_needs_a_strategy(self):
        model = network()
        model.compile(DiLoCo("sgd"), "mse")
        with self.assertRaisesRegex(ValueError, "under a `TernGradStrategy`"):
            model.fit(*data(4), verbose=0)

    def test_needs_weights_before_the_first_step(self):
        class Late(keras.Model):
            def train_step(self, batch):
                if not self.layers:
                    self.dense = keras.layers.Dense(1)
                x, y = batch
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((self.dense(x) - y) ** 2)
                grads = tape.gradient(loss, self.dense.trainable_variables)
                self.optimizer.apply(grads, self.dense.trainable_variables)
                return {"loss": loss}

        with terngrad_tf.TernGradStrategy(num_nodes=2).scope():
            model = Late()
            model.compile(DiLoCo("sgd"))
        with self.assertRaisesRegex(ValueError, "must be built before a step"):
            model.fit(*data(4), verbose=0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
