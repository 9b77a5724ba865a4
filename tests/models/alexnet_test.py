"""AlexNet with two groups: connections, initial values and normalization."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models


class AlexnetTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = models.build("alexnet", num_classes=7, image_size=57)

    def test_its_kernels_have_the_published_shapes(self):
        pair = {"conv1": (11, 11, 3, 48), "conv2": (5, 5, 48, 128), "conv3": (3, 3, 256, 192)}
        pair |= {"conv4": (3, 3, 192, 192), "conv5": (3, 3, 192, 128)}
        expected = {f"{name}_{group}": shape for name, shape in pair.items() for group in (1, 2)}
        expected |= {"fc6": (256, 4096), "fc7": (4096, 4096), "logits": (4096, 7)}
        layers = [layer for layer in self.model.layers if hasattr(layer, "kernel")]
        self.assertEqual({layer.name: tuple(layer.kernel.shape) for layer in layers}, expected)

    def test_groups_meet_after_the_second_and_the_fifth_convolution_only(self):
        # Outputs that depend on the first group's first convolution, before the groups meet.
        probe = keras.Model(
            self.model.input,
            [self.model.get_layer(f"pool2_{group}").output for group in (1, 2)],
        )
        images = np.random.default_rng(1).normal(size=(1, 57, 57, 3)).astype("float32")
        before = probe(images)
        first = self.model.get_layer("conv1_1").kernel
        kept = first.numpy()
        first.assign(-kept)
        after = probe(images)
        first.assign(kept)
        self.assertNotAllClose(before[0], after[0], rtol=1e-3, atol=1e-9)
        self.assertAllEqual(before[1], after[1])
        self.assertEqual(self.model.get_layer("concat2").output.shape[-1], 256)
        self.assertEqual(self.model.get_layer("concat5").output.shape[-1], 256)

    def test_kernels_are_normals_cut_at_two_deviations_and_biases_as_published(self):
        stddevs = {"fc6": 0.005, "fc7": 0.005}
        for layer in self.model.layers:
            if hasattr(layer, "kernel"):
                kernel = layer.kernel.numpy()
                stddev = stddevs.get(layer.name, 0.01)
                self.assertLessEqual(np.abs(kernel).max(), 2 * stddev)
                tolerance = 4 / np.sqrt(2 * kernel.size)
                self.assertAllClose(kernel.std() / stddev, 0.8796, rtol=tolerance)
        for name, start in (("fc6", 0.1), ("fc7", 0.1), ("logits", 0.0)):
            bias = self.model.get_layer(name).bias.numpy()
            self.assertAllClose(bias, np.full_like(bias, start))

    def test_batch_normalization_shifts_but_does_not_scale(self):
        norms = [x for x in self.model.layers if isinstance(x, keras.layers.BatchNormalization)]
        self.assertLen(norms, 10)
        for norm in norms:
            self.assertEqual((norm.momentum, norm.epsilon), (0.9997, 0.001))
            self.assertEqual((norm.center, norm.scale), (True, False))

    def test_dropout_keeps_units_with_the_given_probability_and_scales_them(self):
        model = models.build("alexnet", num_classes=7, image_size=57, dropout_keep_prob=0.8)
        kept = model.get_layer("fc6_dropout")(tf.ones((100, 4096)), training=True).numpy()
        self.assertAllClose(np.unique(kept), [0.0, 1.25])
        self.assertAllClose(np.mean(kept > 0), 0.8, atol=0.005)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
