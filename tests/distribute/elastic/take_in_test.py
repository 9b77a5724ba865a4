"""`TakeInWorkers` looks for waiting workers during `fit` only."""

import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TakeInWorkers, TernGradStrategy, join_cluster
from terngrad_tf.distribute.cluster.resolvers import cluster_of
from tests.distribute.processes import free_ports


class Fail(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise ArithmeticError


class TakeInTest(tf.test.TestCase):
    def test_an_error_ends_the_search(self):
        workers = cluster_of([f"127.0.0.1:{port}" for port in free_ports(2)], 0)
        membership = join_cluster(workers, self.get_temp_dir(), lambda: None, join_timeout=0.1)
        strategy = TernGradStrategy(1)
        with strategy.scope():
            model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        before, x = threading.active_count(), np.ones([4, 1])
        callbacks = [TakeInWorkers(strategy, membership), Fail()]
        with self.assertRaises(ArithmeticError):
            model.fit(x, x, verbose=0, callbacks=callbacks)
        self.assertEqual(threading.active_count(), before)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
