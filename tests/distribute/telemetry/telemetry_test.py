"""Tests of measurements of exchanges; `cluster_test.py` tests them between processes."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import DiLoCo, Quantization, TernGradStrategy
from terngrad_tf.distribute.telemetry.measurements import WINDOW
from terngrad_tf.distribute.telemetry.window import Window
from tests.distribute import strategy_options
from tests.distribute.samples import build, data, gradients_of, reduce_once

NUM_REPLICAS = 4


def flat(tensors):
    return np.concatenate([np.ravel(t).astype(np.float64) for t in tensors])


class WindowTest(tf.test.TestCase):
    def test_the_newest_rows_are_kept_oldest_first(self):
        window = Window(4, 2)
        self.assertEqual(window.read().shape, (0, 2))

        @tf.function
        def step(number):
            window.append(tf.stack([number, 2 * number]))

        for number in range(11):
            step(tf.constant(number, tf.float64))
            rows = window.read()
            kept = range(max(0, number - 3), number + 1)
            self.assertAllEqual(rows, [[n, 2 * n] for n in kept])


def num_operations(num_variables, **options):
    """Number of operations of a step that exchanges gradients, and of all functions it calls."""
    strategy = TernGradStrategy(2, **strategy_options.arguments(**options))
    with strategy.scope():
        variables = [keras.Variable(tf.ones([8, 16])) for _ in range(num_variables)]
        optimizer = keras.optimizers.SGD()
        optimizer.build(variables)

    def replica_step():
        optimizer.apply_gradients([(tf.identity(variable), variable) for variable in variables])

    step = tf.function(lambda: strategy.run(replica_step), autograph=False)
    definition = step.get_concrete_function().graph.as_graph_def()
    return len(definition.node) + sum(len(f.node_def) for f in definition.library.function)


class TelemetryTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.gradients = [gradients_of(replica) for replica in range(NUM_REPLICAS)]

    @parameterized.parameters("bidirectional", "sparse")
    @pytest.mark.long
    def test_one_step_of_other_wires(self, wire):
        self.test_one_step_matches_numpy_and_measuring_changes_no_bit(wire)

    def test_one_step_matches_numpy_and_measuring_changes_no_bit(self, wire="auto"):
        expected = reduce_once(TernGradStrategy(NUM_REPLICAS, wire=wire), self.gradients)
        strategy = TernGradStrategy(NUM_REPLICAS, wire=wire, telemetry_freq=1, statistics_freq=1)
        self.assertIsNone(strategy.telemetry.last)
        reduced = reduce_once(strategy, self.gradients)
        for got, want in zip(reduced, expected, strict=True):
            np.testing.assert_array_equal(got, want)

        last = strategy.telemetry.last
        floats = flat(
            np.sum(g, axis=0, dtype=np.float64) for g in zip(*self.gradients, strict=True)
        )
        ours = flat(reduced)
        lengths = np.linalg.norm(ours) * np.linalg.norm(floats)
        # float32 sums of 21,401 products.
        self.assertNear(last.cosine, ours @ floats / lengths, 1e-5)
        error = np.linalg.norm(ours - floats) / np.linalg.norm(floats)
        self.assertNear(last.relative_error, error, 1e-5)
        recorded = strategy.gradient_statistics.values()
        nonzero = sum(r.negative + r.positive for r in recorded)
        self.assertNear(last.nonzero_share, nonzero / ours.size, 1e-6)

        traffic = strategy.traffic
        self.assertEqual((last.step, last.num_steps, last.num_members), (0, 1, NUM_REPLICAS))
        self.assertEqual(last.wire, traffic.wire)
        self.assertEqual(last.received_bytes, traffic.received_bytes)
        self.assertEqual(last.sent_bytes, traffic.received_bytes)
        self.assertEqual(last.float32_bytes, traffic.float32_bytes)
        self.assertEqual(last.compression_ratio, traffic.compression_ratio)
        self.assertNear(last.bits_per_element * traffic.float32_bytes / 32, last.sent_bytes, 1e-3)
        # No step precedes the first one.
        self.assertIsNone(last.step_seconds)
        self.assertIsNone(last.scale_seconds)
        self.assertGreater(last.encode_seconds, 0.0)
        self.assertEqual(last.exchange_seconds, 0.0)

    @pytest.mark.slow
    def test_equal_gradients_of_two_levels_have_no_error(self):
        gradient = np.where(np.arange(1000) % 3 == 0, -0.25, 0.25).astype(np.float32)
        strategy = TernGradStrategy(
            NUM_REPLICAS, telemetry_freq=1, quantization=Quantization(rotate=False, clip_factor=0.0)
        )
        reduce_once(strategy, [[gradient]] * NUM_REPLICAS)
        last = strategy.telemetry.last
        self.assertNear(last.cosine, 1.0, 1e-6)
        self.assertNear(last.relative_error, 0.0, 1e-6)
        self.assertNear(last.nonzero_share, 1.0, 1e-6)

    @parameterized.parameters(0.0, np.nan)
    def test_undefined_values_are_none(self, value):
        gradients = [[np.full([5], value, np.float32)]] * 2
        strategy = TernGradStrategy(2, telemetry_freq=1)
        reduce_once(strategy, gradients)
        last = strategy.telemetry.last
        self.assertIsNone(last.cosine)
        self.assertIsNone(last.relative_error)
        self.assertEqual(last.received_bytes, strategy.traffic.received_bytes)

    @pytest.mark.slow
    def test_steps_with_float_gradients_count_their_bytes_and_have_no_sample(self):
        strategy = TernGradStrategy(
            NUM_REPLICAS,
            telemetry_freq=1,
            quantization=Quantization(float_steps=lambda step: step == 1),
        )
        for step in range(3):
            with strategy.scope():
                optimizer = keras.optimizers.SGD(1.0)
                optimizer.iterations.assign(step)
            reduce_once(strategy, self.gradients, optimizer=optimizer)
            last = strategy.telemetry.last
            self.assertEqual(last.step, step)
            self.assertEqual(last.received_bytes, strategy.traffic_of(step).received_bytes)
            self.assertEqual(last.wire, "float32" if step == 1 else strategy.traffic.wire)
            self.assertEqual(last.cosine is None, step == 1)
        mean = strategy.telemetry.mean()
        received = [strategy.traffic_of(step).received_bytes for step in range(3)]
        self.assertEqual(mean.num_steps, 3)
        self.assertNear(mean.received_bytes, np.mean(received), 1e-6 * np.sum(received))

    @pytest.mark.slow
    def test_fit_is_measured_and_its_weights_are_the_same_to_the_bit(self):
        weights = []
        for freq in (0, 3):
            strategy = TernGradStrategy(
                2, telemetry_freq=freq, quantization=Quantization(min_size=10)
            )
            model = build(strategy, steps_per_execution=2)
            model.fit(*data(640), batch_size=64, verbose=0)
            weights.append([v.numpy() for v in model.variables])
        for off, on in zip(*weights, strict=True):
            np.testing.assert_array_equal(off, on)
        last, mean = strategy.telemetry.last, strategy.telemetry.mean()
        self.assertEqual((last.step, mean.num_steps), (9, 10))
        self.assertIsNotNone(last.cosine)
        # Steps 0, 3, 6 and 9 are sampled.
        self.assertEqual(strategy.telemetry.mean(3).cosine, last.cosine)
        self.assertNotEqual(strategy.telemetry.mean(4).cosine, last.cosine)
        self.assertBetween(mean.cosine, 0.0, 1.0)
        self.assertGreater(mean.rest_seconds, 0.0)
        parts = mean.encode_seconds + mean.exchange_seconds + mean.decode_seconds
        self.assertGreater(parts, 0.0)
        self.assertGreaterEqual(mean.step_seconds, mean.rest_seconds)

    @pytest.mark.slow
    def test_a_single_replica_measures_the_time_of_scales(self):
        strategy = TernGradStrategy(1, telemetry_freq=100)
        model = build(strategy)
        model.fit(*data(320), batch_size=64, verbose=0)
        self.assertGreater(strategy.telemetry.mean().scale_seconds, 0.0)

    @pytest.mark.slow
    def test_local_steps_are_measured_when_they_exchange(self):
        strategy = TernGradStrategy(2, telemetry_freq=1)
        model = build(strategy, optimizer=lambda: DiLoCo(keras.optimizers.SGD(0.1), 4))
        model.fit(*data(512), batch_size=64, verbose=0)
        mean = strategy.telemetry.mean()
        self.assertEqual(mean.num_steps, 2)
        self.assertBetween(mean.cosine, 0.0, 1.0)

    def test_measuring_adds_few_operations_for_each_tensor(self):
        def of_each(**options):
            few, many = (num_operations(count, **options) for count in (10, 20))
            return (many - few) / 10

        measured = of_each(telemetry_freq=1, statistics_freq=1)
        self.assertLess(measured - of_each(), 20)

    def test_nothing_is_measured_if_telemetry_is_off(self):
        def operations_of(freq):
            strategy = TernGradStrategy(2, telemetry_freq=freq)
            with strategy.scope():
                variable = keras.Variable(tf.zeros([3]))
                optimizer = keras.optimizers.SGD(1.0)
                optimizer.build([variable])

            def replica():
                optimizer.apply([tf.ones([3])], [variable])

            step = tf.function(lambda: strategy.run(replica), autograph=False)
            graph = step.get_concrete_function().graph
            return [operation.type for operation in graph.get_operations()]

        self.assertNotIn("Timestamp", operations_of(0))
        self.assertIn("Timestamp", operations_of(1))
        self.assertIsNone(TernGradStrategy(2).telemetry.mean())

    def test_bad_values_are_named(self):
        with self.assertRaisesRegex(ValueError, "`telemetry_freq` must be.*=-1"):
            TernGradStrategy(2, telemetry_freq=-1)
        for value in (0, WINDOW + 1, 1.5):
            with self.assertRaisesRegex(ValueError, f"`num_steps` must be.*={value}"):
                TernGradStrategy(2, telemetry_freq=1).telemetry.mean(value)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
