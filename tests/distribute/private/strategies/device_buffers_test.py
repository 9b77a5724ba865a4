"""Iterators over distributed data sets can be dropped while their threads read."""

import sys
import time

import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy


class DroppedIteratorTest(tf.test.TestCase):
    def test_an_iterator_is_dropped_while_its_thread_reads(self):
        """Without a data set that outlives the iterator, the process crashes in the first round."""

        def read(i):
            if i >= 1:  # After the first batch, so that the thread is here when that batch exists.
                time.sleep(0.2)
            return i

        # Keras sets this for arrays. Graph rewriting would make a data set that the iterator owns.
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        dataset = tf.data.Dataset.range(20).map(
            lambda i: tf.ensure_shape(tf.py_function(read, [i], tf.int64), [])
        )
        strategy = TernGradStrategy(2)
        for _ in range(3):
            batches = dataset.batch(1).with_options(options)
            iterator = iter(strategy.experimental_distribute_dataset(batches))
            first = strategy.experimental_local_results(next(iterator))
            self.assertAllEqual(tf.concat(first, 0), [0])
            del iterator


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
