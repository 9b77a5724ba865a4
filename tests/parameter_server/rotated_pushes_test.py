"""Tests of pushes to parameter servers with rotated gradients."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import Quantization
from terngrad_tf.parameter_server.codec import PushCodec
from tests.distribute.samples import gradients_of


class PushesTest(tf.test.TestCase):
    def test_pushes_arrive_rotated_back_and_their_bytes_are_counted(self):
        gradients = [tf.constant(g) for g in gradients_of(0)]
        shapes = [g.shape for g in gradients]
        for bits, bound in ((1, 0.5), (4, 0.03)):
            quantization = Quantization(grad_bits=bits)
            push = PushCodec(shapes, [0, 1, 3], [4, 5, 6, 7], quantization, 3)
            packed = push.encode(gradients, tf.constant(2**33 + 5, tf.int64), tf.constant(1))
            arrived = push.decode(packed)
            np.testing.assert_array_equal(arrived[2], gradients[2])
            lost = sum(np.sum((a - g) ** 2) for a, g in zip(arrived, gradients, strict=True))
            errors = lost / sum(np.sum(np.square(g)) for g in gradients)
            self.assertBetween(errors, 0.2 * bound, bound)
            travelling = sum(4 * int(tf.size(tensor)) for tensor in tf.nest.flatten(packed))
            self.assertEqual(push.num_bytes, travelling)
            self.assertEqual(int(push.num_bytes_of(packed)), travelling)

    def test_streams_of_pushes_are_not_rotated(self):
        with self.assertRaisesRegex(
            ValueError, "`wire` must be 'auto' where gradients are rotated"
        ):
            PushCodec([[3]], [0], [0], Quantization(), 1, wire="sparse")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
