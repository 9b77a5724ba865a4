"""Last lines of errors that TensorFlow meets in Python code."""

import sys

import pytest
import tensorflow as tf

from terngrad_tf.common.last_line import one_line


def failing():
    yield 1
    raise ValueError("bad record 5")


class OneLineTest(tf.test.TestCase):
    def line_of(self, function):
        with self.assertRaises(tf.errors.OpError) as caught:
            function()
        return one_line(caught.exception)

    def test_a_generators_error_is_quoted_alone(self):
        dataset = tf.data.Dataset.from_generator(failing, tf.int32)

        @tf.function
        def total():
            return dataset.reduce(0, lambda total, value: total + value)

        self.assertEqual(self.line_of(lambda: list(dataset)), "ValueError: bad record 5")
        self.assertEqual(self.line_of(total), "ValueError: bad record 5")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
