"""Tests of local steps that keep the unsent part of changes, compared with plain Keras."""

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
from terngrad_tf.distribute.exchange.wires import streams
from tests import runs
from tests.distribute import processes, strategy_options
from tests.distribute.local_sgd.local_steps_cases import (
    NUM_FEATURES,
    ResumeCases,
    adamw,
    data,
    fit_steps,
    nesterov,
    network,
    trained,
)

WORKER = pathlib.Path(__file__).with_name("local_steps_worker.py")
SGD = keras.optimizers.SGD
# It selects 4 of the network's 41 elements.
BUDGET = 0.6


def largest(due, share):
    """The definition in NumPy."""
    sizes = np.sort(np.abs(np.concatenate([np.ravel(d) for d in due])))
    threshold = sizes[-int(np.ceil(share * sizes.size))]
    kept = [np.abs(d) >= threshold for d in due]
    return [
        np.where(k, np.sign(d) * (np.abs(d[k]).mean() if k.any() else 0), 0).astype(np.float32)
        for d, k in zip(due, kept, strict=True)
    ]


def trained_alone(inner, outer, sync_every, share, num_steps=12, whole=()):
    """Weights and left-over changes of one replica in plain Keras; two lists of arrays.

    Args:
        inner, outer: functions that make optimizers.
        sync_every: steps between exchanges; each epoch of 4 steps also ends with one.
        share: share of the elements that travel.
        num_steps: steps.
        whole: positions of weights that travel whole.
    """
    own, shared, outer = network(), network(), outer()
    own.compile(inner(), "mse")
    left = [np.zeros(weight.shape, np.float32) for weight in shared.trainable_variables]
    x, y = data(48)
    since = 0
    for step in range(num_steps):
        start = 12 * (step % 4)
        own.train_on_batch(x[start : start + 12], y[start : start + 12])
        since += 1
        if since == sync_every or step % 4 == 3:
            since = 0
            pairs = zip(shared.trainable_variables, own.trainable_variables, strict=True)
            due = [e + (w.numpy() - v.numpy()) for e, (w, v) in zip(left, pairs, strict=True)]
            changes = list(due)
            rounded = [i for i in range(len(due)) if i not in whole]
            if rounded:
                parts = largest([due[i] for i in rounded], share)
                for i, part in zip(rounded, parts, strict=True):
                    changes[i] = part
            left = [d - c for d, c in zip(due, changes, strict=True)]
            outer.apply([tf.constant(change) for change in changes], shared.trainable_variables)
            own.set_weights(shared.get_weights())
    return shared.get_weights(), left


def left_over(model):
    """The changes that exchanges left on each replica, a list of arrays `[replicas, ...]`."""
    return model.optimizer.replica_state.get()[-len(model.trainable_variables) :]


class EqualsTest(parameterized.TestCase, tf.test.TestCase):
    """Numbers of one replica, whose codes represent exactly what it sends."""

    def check(self, expected, model):
        weights, left = expected
        self.assertAllClose(model.get_weights(), weights, rtol=1e-4, atol=1e-5)
        for actual, of_one in zip(left_over(model), left, strict=True):
            self.assertAllClose(actual[0], of_one, rtol=1e-4, atol=1e-5)

    @pytest.mark.slow
    def test_one_replica_trains_as_plain_keras(self):
        self.check_one_replica(BUDGET)

    @pytest.mark.long
    def test_one_replica_with_a_small_budget_trains_as_plain_keras(self):
        self.check_one_replica(0.1)

    def check_one_replica(self, budget):
        model = trained(
            lambda: DiLoCo(adamw(), 3, outer=nesterov()), 1, grad_bits=1, bits_per_element=budget
        )
        share = streams.nonzero_share(budget)
        self.check(trained_alone(adamw, nesterov, 3, share), model)
        self.assertTrue(model.optimizer.error_feedback)

    @pytest.mark.slow
    def test_replicas_that_see_the_same_train_as_one(self):
        self.check_replicas(3)

    @parameterized.parameters(2, 4)
    @pytest.mark.long
    def test_two_and_four_replicas_that_see_the_same_train_as_one(self, count):
        self.check_replicas(count)

    def check_replicas(self, count):
        strategy = terngrad_tf.TernGradStrategy(
            num_nodes=count, quantization=terngrad_tf.Quantization(bits_per_element=BUDGET)
        )
        with strategy.scope():
            model = network()
            model.compile(DiLoCo(adamw(), 3, outer=nesterov()), "mse")
        x, y = (
            np.concatenate([np.tile(part[i : i + 12], [count, 1]) for i in range(0, 48, 12)])
            for part in data(48)
        )
        model.fit(x, y, batch_size=12 * count, epochs=3, shuffle=False, verbose=0)
        share = streams.nonzero_share(BUDGET)
        self.check(trained_alone(adamw, nesterov, 3, share), model)

    @pytest.mark.slow
    def test_weights_that_stay_float_travel_whole(self):
        model = trained(
            lambda: DiLoCo(SGD(0.1), 2, outer=SGD(1.0)),
            1,
            grad_bits=1,
            bits_per_element=0.3,
            min_size=6,
        )
        share = streams.nonzero_share(0.3)
        expected = trained_alone(lambda: SGD(0.1), lambda: SGD(1.0), 2, share, whole=(1, 2, 3))
        self.check(expected, model)
        self.assertAllEqual(left_over(model)[1], np.zeros([1, 5]))

    @pytest.mark.slow
    def test_all_travels_in_float_steps(self):
        model = trained(
            lambda: DiLoCo(SGD(0.1), 2, outer=SGD(1.0)),
            1,
            grad_bits=1,
            bits_per_element=0.3,
            float_steps=lambda step: step >= 0,
        )
        expected = trained_alone(lambda: SGD(0.1), lambda: SGD(1.0), 2, 0.3, whole=range(4))
        self.check(expected, model)

    @pytest.mark.slow
    def test_in_turn_and_beside_steps_nothing_is_lost(self):
        self.check_nothing_is_lost(fragments=2, overlap=1)

    @parameterized.parameters({"fragments": 2}, {"overlap": 1}, {"overlap": 2})
    @pytest.mark.long
    def test_in_turn_or_beside_steps_nothing_is_lost(self, **options):
        self.check_nothing_is_lost(**options)

    def check_nothing_is_lost(self, **options):
        """If gradients do not depend on weights, sent and left-over changes add up to the whole."""

        def linear(**strategy):
            strategy = terngrad_tf.TernGradStrategy(
                num_nodes=2,
                **strategy_options.arguments(rounding="independent", **strategy),
            )
            with strategy.scope():
                model = keras.Sequential(
                    [keras.Input([NUM_FEATURES]), keras.layers.Dense(5, kernel_initializer="zeros")]
                )
                optimizer = DiLoCo(SGD(0.05), 2, outer=SGD(1.0), alpha=0, **options)
                model.compile(optimizer, lambda y, prediction: y[:, 0] * prediction[:, 0])
            # Both replicas see the same data, so their codes represent exactly what they send.
            x, y = (
                np.concatenate([np.tile(part[i : i + 6], [2, 1]) for i in range(0, 48, 6)])
                for part in data(48)
            )
            model.fit(x, y, batch_size=12, shuffle=False, verbose=0)
            return model

        model, whole = linear(bits_per_element=0.3), linear(grad_bits=32)
        left = left_over(model)
        self.assertGreater(max(np.abs(of_replicas).max() for of_replicas in left), 1e-3)
        for weight, of_replicas, other in zip(
            model.get_weights(), left, whole.get_weights(), strict=True
        ):
            self.assertAllClose(weight - of_replicas.mean(0), other, rtol=1e-4, atol=1e-5)


class OptionsTest(parameterized.TestCase, tf.test.TestCase):
    """When error feedback is on."""

    def built(self, error_feedback=None, **strategy):
        with terngrad_tf.TernGradStrategy(
            num_nodes=2, **strategy_options.arguments(**strategy)
        ).scope():
            optimizer = DiLoCo(SGD(0.1), 3, error_feedback=error_feedback)
            optimizer.build(network().trainable_variables)
        return optimizer

    def test_only_a_budget_turns_it_on(self):
        self.assertIs(self.built().error_feedback, False)
        self.assertIs(self.built(grad_bits=32).error_feedback, False)
        self.assertIs(self.built(bits_per_element=0.3).error_feedback, True)
        self.assertIs(self.built(False, bits_per_element=0.3).error_feedback, False)

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "`error_feedback` must be a bool or None.*yes"):
            DiLoCo("sgd", error_feedback="yes")  # pyright: ignore[reportArgumentType]
        with self.assertRaisesRegex(ValueError, "`error_feedback` must go with .*`bits_per_el"):
            self.built(True)

    @pytest.mark.slow
    def test_a_budget_holds_in_exchanges(self):
        """Holds for different replicas, too; a code has the size of the largest replica."""
        shares = []

        class Look(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                self.before = self.model.get_weights()

            def on_train_batch_end(self, batch, logs=None):
                if batch == 2:
                    changes = [
                        after - before
                        for after, before in zip(self.model.get_weights(), self.before, strict=True)
                    ]
                    shares.append(sum(map(np.count_nonzero, changes)) / 41)

        strategy = terngrad_tf.TernGradStrategy(
            num_nodes=2, quantization=terngrad_tf.Quantization(bits_per_element=BUDGET)
        )
        with strategy.scope():
            model = network()
            model.compile(DiLoCo(SGD(0.1), 3, outer=SGD(1.0)), "mse")
        model.fit(*data(48), batch_size=12, epochs=2, verbose=0, callbacks=[Look()])
        # At most 4 of 41 elements of each replica.
        self.assertTrue(all(0 < share <= 8 / 41 for share in shares), shares)

    @pytest.mark.slow
    def test_steps_by_time(self):
        model = trained(
            lambda: DiLoCo(SGD(0.05), sync_seconds=0.01, outer=SGD(1.0)),
            1,
            grad_bits=1,
            bits_per_element=0.3,
        )
        self.assertGreater(np.abs(left_over(model)[0]).max(), 0)
        self.assertNotAllClose(model.get_weights()[0], network().get_weights()[0])


class ResumeTest(ResumeCases, parameterized.TestCase, tf.test.TestCase):
    """Left-over changes are part of the saved state."""

    def compiled(self):
        strategy = terngrad_tf.TernGradStrategy(
            num_nodes=2, quantization=terngrad_tf.Quantization(bits_per_element=0.3)
        )
        with strategy.scope():
            model = network()
            model.compile(DiLoCo(adamw(), 4, outer=nesterov()), "mse")
        return strategy, model

    @pytest.mark.slow
    def test_a_resumed_run_is_equal_to_the_bit(self):
        path = os.path.join(self.get_temp_dir(), "saved.keras")
        _, model = self.compiled()
        fit_steps(model, 0, 6)
        model.save(path)
        fit_steps(model, 6, 12)
        strategy, _ = self.compiled()
        with strategy.scope():
            resumed = keras.models.load_model(path)
        fit_steps(resumed, 6, 12)
        self.assert_same_state(model, resumed)
        for one, other in zip(left_over(model), left_over(resumed), strict=True):
            self.assertAllEqual(one, other)
        self.assertGreater(np.abs(left_over(model)[0]).max(), 0)

    @pytest.mark.slow
    def test_a_saved_model_loads_without_a_strategy(self):
        path = os.path.join(self.get_temp_dir(), "saved.keras")
        _, model = self.compiled()
        fit_steps(model, 0, 5)
        model.save(path)
        loaded = keras.models.load_model(path)
        self.assertAllEqual(loaded.get_weights()[0], model.get_weights()[0])
        self.assertTrue(loaded.optimizer.error_feedback)


@pytest.mark.long
class ProcessesTest(tf.test.TestCase):
    """Two processes of one replica each."""

    def test_processes_hold_the_same_weights(self):
        options = {"grad_bits": 1, "bits_per_element": BUDGET, "fragments": 2, "overlap": 2}
        jobs = {"overlapping": options}
        results = processes.run(WORKER, 2, runs.class_folder(type(self)), jobs=jobs)
        start = network(batch_norm=True).get_weights()
        changed = []
        for index, before in enumerate(start):
            first, second = (result["overlapping"][str(index)] for result in results)
            self.assertAllEqual(first, second)
            changed.append(not np.array_equal(first, before))
        # The small changes of a single bias may all stay behind.
        self.assertGreater(sum(changed), len(start) // 2)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
