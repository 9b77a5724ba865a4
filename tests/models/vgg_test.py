"""The VGG networks' stages and normalization."""

import sys

import keras
import pytest
import tensorflow as tf

from terngrad_tf import models


class VggTest(tf.test.TestCase):
    def test_vgg_a_has_its_stages_of_batch_normalized_convolutions(self):
        model = models.build("vgg_a", num_classes=7, image_size=32)
        convs = [x for x in model.layers if isinstance(x, keras.layers.Conv2D)]
        widths = {"conv1_1": 64, "conv2_1": 128, "conv3_1": 256, "conv3_2": 256}
        widths |= {"conv4_1": 512, "conv4_2": 512, "conv5_1": 512, "conv5_2": 512}
        self.assertEqual({conv.name: conv.filters for conv in convs}, widths)
        for conv in convs:
            self.assertEqual((conv.kernel_size, conv.strides), ((3, 3), (1, 1)))
            self.assertFalse(conv.use_bias)
            norm = model.get_layer(f"{conv.name}_bn")
            self.assertEqual((norm.momentum, norm.epsilon), (0.999, 0.001))
            self.assertEqual((norm.center, norm.scale), (True, False))
        pools = [model.get_layer(f"pool{stage}").output.shape[1] for stage in range(1, 6)]
        self.assertEqual(pools, [16, 8, 4, 2, 1])

    def test_kernels_are_uniform_as_glorot_and_biases_start_at_zero(self):
        model = models.build("vgg_a", num_classes=7, image_size=32)
        for layer in model.layers:
            if not hasattr(layer, "kernel"):
                continue
            *window, inputs, outputs = layer.kernel.shape
            area = window[0] * window[1] if window else 1
            limit = (6 / (area * (inputs + outputs))) ** 0.5
            self.assertAllClose(tf.reduce_max(tf.abs(layer.kernel.value)), limit, rtol=0.01)
            if layer.bias is not None:
                self.assertAllEqual(layer.bias.value, tf.zeros_like(layer.bias.value))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
