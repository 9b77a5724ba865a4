"""Tests of the number of graph operations per gradient; TensorFlow keeps several copies of each."""

import sys

import pytest
import tensorflow as tf

from terngrad_tf import ternary


def num_operations(function, num_tensors):
    """Returns the number of operations of a graph, including its functions."""
    shapes = [(3, 3, 8, 16), (16,), (16,)] * (num_tensors // 3)
    specs = [tf.TensorSpec(shape) for shape in shapes]
    graph = tf.function(function, autograph=False).get_concrete_function(specs).graph
    definition = graph.as_graph_def()
    functions = definition.library.function
    return len(definition.node) + sum(len(found.node_def) for found in functions)


class GraphSizeTest(tf.test.TestCase):
    def check(self, function, expected):
        few, many = (num_operations(function, count) for count in (30, 60))
        # One input, and the operations that each gradient adds.
        self.assertLessEqual((many - few) / 30, 1 + expected)

    def test_scales(self):
        self.check(lambda gradients: ternary.local_scales(gradients, 2.5), 3)

    def test_encode(self):
        def encode(gradients):
            scales = tf.ones([len(gradients)])
            return ternary.encode(gradients, scales, seed=0, step=1, replica=0, num_replicas=2)

        self.check(encode, 5)

    def test_decode(self):
        def decode(gradients):
            shapes = [gradient.shape for gradient in gradients]
            count = sum(ternary.num_words(shape.num_elements(), 3) for shape in shapes)
            words, scales = tf.zeros([2, count], tf.int32), tf.ones([len(shapes)])
            return ternary.decode(words, scales, shapes, [tf.float32] * len(shapes), total_bias=2)

        self.check(decode, 6)

    def test_sums_of_codes(self):
        def sums(gradients):
            scales = tf.ones([len(gradients)])
            options = {"seed": 0, "step": 1, "replicas": [0, 1], "num_replicas": 2}
            return ternary.sum_codes([gradients, gradients], scales, **options)

        self.check(sums, 5)

    def test_rotation(self):
        def there(gradients):
            rotation = ternary.Rotation([g.shape for g in gradients], levels=1)
            measured = rotation.measure(gradients)
            return rotation.rotate(gradients, measured, measured[0], seed=0, step=1, tensor=0)

        self.check(there, 9)

        def back(gradients):
            rotation = ternary.Rotation([g.shape for g in gradients], levels=1)
            vectors = [tf.zeros([size]) for size in rotation.sizes]
            dtypes = [tf.float32] * len(gradients)
            scales = tf.ones([rotation.num_blocks])
            return rotation.rotate_back(vectors, scales, dtypes, seed=0, step=1, tensor=0)

        self.check(back, 6)

    def test_codes_of_many_digits_share_functions(self):
        def encode(gradients):
            return ternary.encode(
                *(gradients[:1], tf.ones([1])), seed=0, step=1, replica=0, num_replicas=1
            )

        # Each of a word's 20 digits takes some 40 operations.
        self.assertLess(num_operations(encode, 3), 450)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
