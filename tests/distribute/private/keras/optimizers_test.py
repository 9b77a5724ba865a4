"""Float gradients train each Keras optimizer under the strategy as without one."""

import os
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernaryAllReduce, TernGradStrategy
from tests.distribute import cluster_worker, optimizer_cases, processes

WORKER = pathlib.Path(cluster_worker.__file__)


class OptimizersTest(tf.test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The default strategy stands for plain Keras.
        cls.plain = optimizer_cases.train(tf.distribute.get_strategy())

    def check(self, results):
        self.assertEqual(set(results), set(self.plain))
        wrong = {
            name: float(np.abs(results[name] - expected).max())
            for name, expected in self.plain.items()
            if not np.allclose(results[name], expected, rtol=1e-5, atol=1e-5)
        }
        self.assertEmpty(wrong)

    @pytest.mark.slow
    def test_gradients_are_large_enough_for_every_limit(self):
        norms = [np.linalg.norm(s) for g in optimizer_cases.gradients() for s in g.mean(1)]
        self.assertGreater(min(norms), 0.2)

    def test_two_replicas_train_as_plain_keras(self):
        self.check(optimizer_cases.train(TernGradStrategy(2, grad_bits=32)))

    @parameterized.parameters(1, 4)
    @pytest.mark.long
    def test_one_and_four_replicas_train_as_plain_keras(self, num_replicas):
        self.check(optimizer_cases.train(TernGradStrategy(num_replicas, grad_bits=32)))

    @pytest.mark.long
    def test_replicas_with_steps_run_eagerly(self):
        tf.config.run_functions_eagerly(True)
        self.addCleanup(tf.config.run_functions_eagerly, False)
        self.check(optimizer_cases.train(TernGradStrategy(2, grad_bits=32)))

    @pytest.mark.slow
    def test_a_stock_strategy_with_the_op(self):
        self.check(
            optimizer_cases.train(
                tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], TernaryAllReduce(grad_bits=32))
            )
        )

    @pytest.mark.long
    def test_two_processes_with_two_replicas_each(self):
        folder = os.path.join(self.get_temp_dir(), "processes")
        os.makedirs(folder)
        for result in processes.run(WORKER, 2, folder, job="optimizers", num_local=2):
            self.check(dict(result))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
