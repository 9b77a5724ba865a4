"""Sums have the same bits, whichever tensors other operations still read."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import ternary


def _sums(add):
    """Sums three tensors, of which later operations read the first two, or none."""
    given = tf.constant(np.random.default_rng(0).normal(size=[100, 100]), tf.float32)

    def parts():
        return [tf.exp(given * factor) for factor in (0.1, 0.2, 0.3)]

    @tf.function
    def read_later():
        tensors = parts()
        total = add(tensors)
        with tf.control_dependencies([total]):
            return total, [tf.square(tensor) for tensor in tensors[:2]]

    @tf.function
    def not_read():
        return add(parts())

    return read_later()[0], not_read()


class OrderedSumTest(tf.test.TestCase):
    def test_later_reads_change_no_bit(self):
        read_later, not_read = _sums(ternary.sum_in_order)
        self.assertAllEqual(read_later, not_read)

    def test_later_reads_change_bits_of_add_n(self):
        """If this fails, TensorFlow's sum may replace ours."""
        read_later, not_read = _sums(tf.add_n)
        self.assertNotAllEqual(read_later, not_read)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
