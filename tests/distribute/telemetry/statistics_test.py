"""Tests of the counts of codes that `statistics_freq` requests."""

import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import terngrad_tf
from terngrad_tf import ternary
from terngrad_tf.distribute.telemetry import statistics
from tests.distribute import strategy_options

SIZES = (40, 60, 100)
NUM_REPLICAS = 3


def reduced(gradients, **options):
    """The strategy after it reduced an array `[NUM_REPLICAS, size]` for each variable."""
    strategy = terngrad_tf.TernGradStrategy(
        NUM_REPLICAS, statistics_freq=1, **strategy_options.arguments(**options)
    )
    with strategy.scope():
        variables = [keras.Variable(tf.zeros([size]), name=f"v{size}") for size in SIZES]
        optimizer = keras.optimizers.SGD(1.0)
        optimizer.build(variables)

    @tf.function
    def step():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply([tf.gather(tf.constant(g), number) for g in gradients], variables)

        strategy.run(replica)

    step()
    return strategy


class StatisticsTest(parameterized.TestCase, tf.test.TestCase):
    # The size from which each tensor is counted separately.
    @parameterized.parameters((2**20, "independent"), (50, "correlated"))
    def test_counts_are_those_of_the_first_replicas_codes(self, large, rounding):
        rng = np.random.default_rng(0)
        gradients = [rng.normal(size=(NUM_REPLICAS, size)).astype(np.float32) for size in SIZES]
        gradients[1][0, 3] = np.inf
        with mock.patch.object(statistics, "_LARGE", large):
            strategy = reduced(gradients, rotate=False, seed=7, rounding=rounding)
        for index, (size, gradient) in enumerate(zip(SIZES, gradients, strict=True)):
            found = strategy.gradient_statistics[f"v{size}"]
            codes = ternary.ternarize(
                gradient[0],
                found.scale,
                seed=7,
                step=0,
                tensor=index,
                replica=0,
                num_replicas=NUM_REPLICAS,
                rounding=rounding,
            )
            values, counts = np.unique(codes.numpy(), return_counts=True)
            expected = dict(zip(values.tolist(), counts.tolist(), strict=True))
            self.assertEqual(
                [found.negative, found.zero, found.positive],
                [expected.get(code, 0) for code in (-1, 0, 1)],
            )
        self.assertEqual(strategy.gradient_statistics["v60"].zero, 60)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
