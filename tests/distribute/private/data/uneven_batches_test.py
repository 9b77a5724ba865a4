"""Batches that do not divide evenly among replicas count each example once."""

import functools
import os
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy, private
from tests.distribute import cluster_worker, processes, uneven_cases

WORKER = pathlib.Path(cluster_worker.__file__)


@functools.cache
def plain():
    """The results of plain Keras."""
    return uneven_cases.train(tf.distribute.get_strategy())


class UnevenBatchesTest(tf.test.TestCase, parameterized.TestCase):
    def check(self, results):
        self.assertEqual(set(results), set(plain()))
        for name, expected in plain().items():
            np.testing.assert_allclose(results[name], expected, rtol=2e-5, atol=1e-6, err_msg=name)

    @pytest.mark.long
    def test_four_replicas_of_a_process(self):
        self.check(uneven_cases.train(TernGradStrategy(4, grad_bits=32)))

    @parameterized.parameters(1, 3)
    @pytest.mark.long
    def test_other_numbers_of_replicas_train_as_stock_keras(self, num_replicas):
        self.check(uneven_cases.train(TernGradStrategy(num_replicas, grad_bits=32)))

    @pytest.mark.long
    def test_replicas_with_steps_run_eagerly(self):
        self.check(uneven_cases.train(TernGradStrategy(4, grad_bits=32), run_eagerly=True))

    @pytest.mark.long
    def test_two_processes_with_two_replicas_each(self):
        folder = os.path.join(self.get_temp_dir(), "processes")
        os.makedirs(folder)
        for result in processes.run(WORKER, 2, folder, job="uneven", num_local=2):
            self.check(dict(result))

    def test_a_batch_of_known_size_that_divides_evenly_is_weighed_as_by_stock_keras(self):
        """Only divides by the number of replicas, whatever the processor's order."""
        strategy = TernGradStrategy(4, grad_bits=32)
        seen = []

        def step(x):
            seen.append(private.current_padding())
            return tf.reduce_sum(x)

        tf.function(lambda x: strategy.run_padded(step, (x,)))(
            next(
                iter(
                    strategy.experimental_distribute_dataset(
                        tf.data.Dataset.range(8).batch(8, drop_remainder=True)
                    )
                )
            )
        )
        self.assertEqual(seen, [(None, None, None)])

    def test_predictions_weigh_replicas_by_their_examples(self):
        expected = uneven_cases.predicted(tf.distribute.get_strategy())
        results = uneven_cases.predicted(TernGradStrategy(4, grad_bits=32))
        for name, value in expected.items():
            np.testing.assert_allclose(results[name], value, rtol=2e-5, err_msg=name)

    def test_nan_of_a_padded_replica_does_not_spread(self):
        """The logarithm of zero has no finite gradient."""
        with TernGradStrategy(4, grad_bits=32).scope():
            inputs = keras.Input((2,))
            scaled = keras.layers.Dense(2, kernel_initializer="ones", use_bias=False)(inputs)
            model = keras.Model(inputs, keras.ops.log(scaled))
            model.compile(
                keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
                "mse",
                metrics=["mae"],
            )
        x = np.ones((2, 2), np.float32)
        history = model.fit(x, x, batch_size=8, verbose=0).history
        self.assertTrue(np.isfinite(model.get_weights()[0]).all())
        self.assertNotAllEqual(model.get_weights()[0], np.ones((2, 2)))
        self.assertTrue(np.isfinite([history["loss"], history["mae"]]).all())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
