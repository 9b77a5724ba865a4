"""GoogLeNet: sizes of its modules, initial values and normalization."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models


class GooglenetTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = models.build("googlenet", num_classes=1000)

    def test_its_stages_have_the_published_shapes(self):
        expected = {"pool1": (56, 56, 64), "pool2": (28, 28, 192)}
        expected |= {"mixed_3b": (28, 28, 256), "mixed_3c": (28, 28, 480)}
        for name, width in zip("bcdef", (512, 512, 512, 528, 832), strict=True):
            expected[f"mixed_4{name}"] = (14, 14, width)
        expected |= {"mixed_5b": (7, 7, 832), "mixed_5c": (7, 7, 1024), "flatten": (1024,)}
        for name, shape in expected.items():
            self.assertEqual(self.model.get_layer(name).output.shape[1:], shape, msg=name)

    def test_with_1000_classes_it_has_6617624_weights(self):
        sizes = [np.prod(variable.shape) for variable in self.model.trainable_variables]
        self.assertEqual(sum(sizes), 6_617_624)

    def test_its_57_convolutions_are_normalized_and_start_small(self):
        convs = [x for x in self.model.layers if isinstance(x, keras.layers.Conv2D)]
        self.assertLen(convs, 57)
        for conv in convs:
            kernel = conv.kernel.numpy()
            self.assertFalse(conv.use_bias)
            self.assertLessEqual(np.abs(kernel).max(), 0.02)
            self.assertAllClose(kernel.std() / 0.01, 0.8796, rtol=5 / np.sqrt(2 * kernel.size))
            norm = self.model.get_layer(f"{conv.name}_bn")
            self.assertEqual((norm.momentum, norm.epsilon), (0.9997, 0.001))
            self.assertEqual((norm.center, norm.scale), (True, False))

    def test_its_head_starts_with_the_variance_two_over_its_inputs(self):
        kernel, bias = self.model.get_layer("logits").get_weights()
        self.assertAllClose(kernel.std(), np.sqrt(2 / 1024), rtol=0.01)
        self.assertAllEqual(bias, np.zeros(1000))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
