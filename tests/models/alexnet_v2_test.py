"""AlexNet with one tower, layer by layer."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models


class AlexnetV2Test(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = models.build("alexnet_v2", num_classes=1000)

    def test_its_layers_have_the_published_shapes(self):
        shapes = {layer.name: tuple(layer.output.shape)[1:] for layer in self.model.layers}
        self.assertEqual(
            shapes,
            {
                "images": (224, 224, 3),
                "conv1": (54, 54, 64),
                "pool1": (26, 26, 64),
                "conv2": (26, 26, 192),
                "pool2": (12, 12, 192),
                "conv3": (12, 12, 384),
                "conv4": (12, 12, 384),
                "conv5": (12, 12, 256),
                "pool5": (5, 5, 256),
                "fc6": (1, 1, 4096),
                "fc6_dropout": (1, 1, 4096),
                "fc7": (1, 1, 4096),
                "fc7_dropout": (1, 1, 4096),
                "flatten": (4096,),
                "logits": (1000,),
            },
        )

    def test_with_1000_classes_it_has_50303912_weights(self):
        sizes = [np.prod(variable.shape) for variable in self.model.trainable_variables]
        self.assertEqual(sum(sizes), 50_303_912)

    def test_layers_start_as_published(self):
        for layer in self.model.layers:
            if not hasattr(layer, "kernel"):
                continue
            kernel, bias = layer.get_weights()
            if layer.name.startswith("conv"):
                height, width, inputs, outputs = kernel.shape
                limit = np.sqrt(6 / (height * width * (inputs + outputs)))
                self.assertAllClose(np.abs(kernel).max(), limit, rtol=0.01)
            else:
                self.assertAllClose(kernel.std() / 0.005, 0.8796, rtol=0.01)
            self.assertAllClose(bias, np.full_like(bias, 0.0 if layer.name == "logits" else 0.1))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
