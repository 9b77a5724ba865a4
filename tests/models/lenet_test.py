"""LeNet is the network of the TernGrad experiments."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models


class LenetTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = models.build("lenet", num_classes=10, weight_decay=0.0005)

    def test_it_has_1256080_weights_in_8_variables(self):
        self.assertEqual(self.model.count_params(), 1_256_080)
        self.assertLen(self.model.trainable_variables, 8)

    def test_its_layers_have_the_published_shapes(self):
        shapes = {layer.name: tuple(layer.output.shape)[1:] for layer in self.model.layers}
        self.assertEqual(
            shapes,
            {
                "images": (28, 28, 1),
                "conv1": (28, 28, 20),
                "pool1": (14, 14, 20),
                "conv2": (14, 14, 50),
                "pool2": (7, 7, 50),
                "flatten": (7 * 7 * 50,),
                "fc3": (500,),
                "logits": (10,),
            },
        )

    def test_kernels_are_normals_cut_at_two_deviations_and_biases_zero(self):
        # A normal cut at two deviations has 0.8796 times the deviation.
        for name, stddev in (("conv1", 0.05), ("conv2", 0.05), ("fc3", 0.048), ("logits", 0.0767)):
            kernel, bias = self.model.get_layer(name).get_weights()
            self.assertLessEqual(np.abs(kernel).max(), 2 * stddev)
            tolerance = 4 / np.sqrt(2 * kernel.size)
            self.assertAllClose(kernel.std() / stddev, 0.8796, rtol=tolerance)
            self.assertAllEqual(bias, np.zeros_like(bias))

    def test_weight_decay_adds_half_the_sum_of_squares_of_kernels_only(self):
        kernels = [w for w in self.model.get_weights() if w.ndim > 1]
        expected = 0.0005 / 2 * sum(np.sum(np.square(w, dtype=np.float64)) for w in kernels)
        self.assertAllClose(sum(float(loss) for loss in self.model.losses), expected, rtol=1e-5)

    def test_other_image_sizes_and_channels_build(self):
        model = models.build("lenet", num_classes=3, image_size=15, channels=2)
        self.assertEqual(model(np.zeros((2, 15, 15, 2), "float32")).shape, (2, 3))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
