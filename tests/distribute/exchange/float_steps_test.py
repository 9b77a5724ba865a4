"""Tests of steps that exchange float gradients, and of the statistics of ternary ones."""

import itertools
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import GradientStatistics, Quantization, TernGradStrategy
from tests.distribute import strategy_options
from tests.distribute.samples import build, data, gradients_of, reduce_once

NUM_REPLICAS = 4


def reduced_at(step, strategy, gradients):
    with strategy.scope():
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.iterations.assign(step)
    return reduce_once(strategy, gradients, optimizer=optimizer)


class FloatStepsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.gradients = [gradients_of(replica) for replica in range(NUM_REPLICAS)]

    @pytest.mark.slow
    def test_steps_are_float_if_the_function_says_so_and_ternary_otherwise(self):
        strategy = TernGradStrategy(
            NUM_REPLICAS, quantization=Quantization(float_steps=lambda step: step % 3 == 2)
        )
        for step in (0, 1, 2, 3, 5):
            bits = 32 if step % 3 == 2 else 1
            expected = reduced_at(
                step, TernGradStrategy(NUM_REPLICAS, grad_bits=bits), self.gradients
            )
            for got, want in zip(reduced_at(step, strategy, self.gradients), expected, strict=True):
                np.testing.assert_array_equal(got, want)
        ternary_strategy = TernGradStrategy(NUM_REPLICAS)
        reduce_once(ternary_strategy, self.gradients)
        self.assertEqual(strategy.traffic, ternary_strategy.traffic)
        for step in range(6):
            traffic = strategy.traffic_of(step)
            wanted = traffic.float32_bytes if step % 3 == 2 else strategy.traffic.received_bytes
            self.assertEqual(traffic.received_bytes, wanted)

    @pytest.mark.slow
    def test_training_with_float_steps_only_is_float_training(self):
        runs = []
        for options in ({"grad_bits": 32}, {"float_steps": lambda step: step >= 0}, {}):
            model = build(
                TernGradStrategy(NUM_REPLICAS, **strategy_options.arguments(**options)),
                dropout=0.0,
                steps_per_execution=2,
            )
            model.fit(*data(), batch_size=64, shuffle=False, verbose=0)
            runs.append([v.numpy() for v in model.trainable_variables])
        for float_run, same in zip(runs[0], runs[1], strict=True):
            np.testing.assert_array_equal(float_run, same)
        self.assertNotAllEqual(runs[0][0], runs[2][0])

    @pytest.mark.slow
    def test_the_function_may_hold_conditions_in_fit_and_in_custom_steps(self):
        def only_step_one(step):
            if step < 1:
                return False
            return step < 2

        def found(float_steps):
            strategy = TernGradStrategy(
                NUM_REPLICAS, quantization=Quantization(float_steps=float_steps)
            )
            reduced = [reduced_at(step, strategy, self.gradients) for step in range(3)]
            traffic = [strategy.traffic_of(step) for step in range(3)]
            model = build(
                TernGradStrategy(NUM_REPLICAS, quantization=Quantization(float_steps=float_steps))
            )
            model.fit(*data(), batch_size=64, shuffle=False, verbose=0)
            return traffic, [*itertools.chain(*reduced), *model.get_weights()]

        traffic, arrays = found(only_step_one)
        expected_traffic, expected = found(lambda step: step == 1)
        self.assertEqual(traffic, expected_traffic)
        for array, want in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(array, want)

    def test_bad_options_are_named(self):
        with self.assertRaisesRegex(ValueError, "`float_steps` must be a function.*=7"):
            TernGradStrategy(quantization=Quantization(float_steps=7))
        for bad in (-1, 1.5, True):
            with self.assertRaisesRegex(ValueError, "`statistics_freq` must be .*Received"):
                TernGradStrategy(statistics_freq=bad)


class GradientStatisticsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.gradients = [gradients_of(replica) for replica in range(NUM_REPLICAS)]

    def expected(self, step):
        """The definition, written out."""
        result = {}
        for index, of_replicas in enumerate(zip(*self.gradients, strict=True)):
            scale = max(float(ternary.local_scales([tf.constant(g)], 2.5)[0]) for g in of_replicas)
            codes = ternary.ternarize(
                tf.constant(of_replicas[0]),
                scale,
                seed=0,
                step=step,
                tensor=index,
                replica=0,
                num_replicas=NUM_REPLICAS,
            ).numpy()
            counts = [int((codes == code).sum()) for code in (-1, 0, 1)]
            result[f"v{index}"] = GradientStatistics(step, scale, *counts)
        return result

    def test_records_hold_scale_and_codes_of_the_first_replica(self):
        strategy = TernGradStrategy(
            NUM_REPLICAS, statistics_freq=5, quantization=Quantization(rotate=False)
        )
        self.assertEqual(strategy.gradient_statistics, {})
        reduced_at(3, strategy, self.gradients)
        self.assertEqual(strategy.gradient_statistics, {})
        for step in (5, 40):
            reduced_at(step, strategy, self.gradients)
            self.assertEqual(strategy.gradient_statistics, self.expected(step))
        reduced_at(41, strategy, self.gradients)
        self.assertEqual(strategy.gradient_statistics, self.expected(40))

    def test_float_gradients_leave_no_record(self):
        for options in ({"grad_bits": 32}, {"float_steps": lambda step: step < 9}):
            strategy = TernGradStrategy(
                NUM_REPLICAS, statistics_freq=1, **strategy_options.arguments(**options)
            )
            reduce_once(strategy, self.gradients)
            self.assertEqual(strategy.gradient_statistics, {})

    @pytest.mark.slow
    def test_fit_records_under_the_paths_of_variables(self):
        strategy = TernGradStrategy(NUM_REPLICAS, statistics_freq=4)
        model = build(strategy, steps_per_execution=3)
        model.fit(*data(), batch_size=30, shuffle=False, verbose=0)
        statistics = strategy.gradient_statistics
        self.assertEqual(set(statistics), {v.path for v in model.trainable_variables})
        for variable in model.trainable_variables:
            recorded = statistics[variable.path]
            self.assertEqual(recorded.step, 4)
            size = variable.shape.num_elements()
            self.assertEqual(recorded.negative + recorded.zero + recorded.positive, size)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
