"""Residual networks: blocks, strides, shortcuts, initial values."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import models


def of_type(model, layer_type):
    """Returns the layers of a model whose type is exactly `layer_type`."""
    return [layer for layer in model.layers if type(layer) is layer_type]


class Resnet50Test(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = models.build("resnet_50", num_classes=1000)

    def test_with_1000_classes_it_has_25557032_weights(self):
        sizes = [np.prod(variable.shape) for variable in self.model.trainable_variables]
        self.assertEqual(sum(sizes), 25_557_032)

    def test_its_stages_have_the_published_shapes(self):
        expected = {"conv1": (112, 112, 64), "pool1": (56, 56, 64), "pool_head": (2048,)}
        stages = ((3, 56, 256), (4, 28, 512), (6, 14, 1024), (3, 7, 2048))
        for stage, (num_blocks, size, width) in enumerate(stages, 1):
            for block in range(1, num_blocks + 1):
                expected[f"block{stage}_{block}"] = (size, size, width)
        for name, shape in expected.items():
            self.assertEqual(self.model.get_layer(name).output.shape[1:], shape, msg=name)
        self.assertLen([x for x in self.model.layers if x.name.endswith("_add")], 16)

    def test_the_stride_is_on_the_3x3_convolution_and_on_the_shortcut(self):
        convs = of_type(self.model, keras.layers.Conv2D)
        self.assertLen(convs, 53)
        strided = {conv.name: conv.kernel_size[0] for conv in convs if conv.strides == (2, 2)}
        expected = {"conv1": 7}
        for stage in (2, 3, 4):
            expected |= {f"block{stage}_1_conv2": 3, f"block{stage}_1_shortcut": 1}
        self.assertEqual(strided, expected)
        shortcuts = [conv.name for conv in convs if conv.name.endswith("shortcut")]
        self.assertEqual(shortcuts, [f"block{stage}_1_shortcut" for stage in (1, 2, 3, 4)])

    def test_kernels_are_uniform_as_xavier_and_the_dense_one_a_small_normal(self):
        for conv in of_type(self.model, keras.layers.Conv2D):
            self.assertFalse(conv.use_bias)
            height, width, inputs, outputs = conv.kernel.shape
            limit = (6 / (height * width * (inputs + outputs))) ** 0.5
            largest = tf.reduce_max(tf.abs(conv.kernel.value))
            self.assertAllClose(largest, limit, rtol=0.01)
        kernel, bias = self.model.get_layer("logits").get_weights()
        self.assertLessEqual(np.abs(kernel).max(), 0.02)
        self.assertAllClose(kernel.std(), 0.01 * 0.8796, rtol=0.01)
        self.assertAllEqual(bias, np.zeros(1000))

    def test_normalization_scales_and_keeps_nine_tenths(self):
        norms = of_type(self.model, keras.layers.BatchNormalization)
        self.assertLen(norms, 53)
        for norm in norms:
            self.assertEqual((norm.momentum, norm.epsilon), (0.9, 1e-4))
            self.assertEqual((norm.center, norm.scale), (True, True))
            self.assertAllEqual(norm.gamma.value, tf.ones_like(norm.gamma.value))


class CifarResnetTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(("resnet_20", 20), ("resnet_32", 32))
    def test_it_has_as_many_layers_as_its_name_says(self, name, num_layers):
        model = models.build(name, num_classes=10)
        convs = of_type(model, keras.layers.Conv2D)
        self.assertLen(convs + of_type(model, keras.layers.Dense), num_layers)
        self.assertEqual({conv.kernel_size for conv in convs}, {(3, 3)})
        strided = [conv.name for conv in convs if conv.strides == (2, 2)]
        self.assertEqual(strided, ["block2_1_conv1", "block3_1_conv1"])
        per_stage = (num_layers - 2) // 6
        for stage, size, width in ((1, 32, 16), (2, 16, 32), (3, 8, 64)):
            for block in range(1, per_stage + 1):
                shape = model.get_layer(f"block{stage}_{block}").output.shape
                self.assertEqual(shape[1:], (size, size, width))

    @parameterized.parameters(8, 9)
    def test_a_shortcut_takes_every_other_pixel_and_zero_for_new_channels(self, image_size):
        model = models.build("resnet_20", 3, image_size)
        model.get_layer("block2_1_conv2_bn").gamma.assign(np.zeros(32))
        taps = [model.get_layer(name).output for name in ("block1_3", "block2_1")]
        images = np.random.default_rng(1).normal(size=(2, image_size, image_size, 3))
        before, after = keras.Model(model.input, taps)(images.astype("float32"))
        self.assertGreater(np.std(before), 0.1)
        self.assertAllEqual(after[..., :16], before[:, ::2, ::2])
        self.assertAllEqual(after[..., 16:], np.zeros_like(after[..., 16:]))

    def test_kernels_have_the_variance_two_over_their_inputs(self):
        model = models.build("resnet_20", 10)
        for layer in model.layers:
            if hasattr(layer, "kernel"):
                kernel = layer.kernel.numpy()
                expected = (2 / np.prod(kernel.shape[:-1])) ** 0.5
                self.assertAllClose(kernel.std(), expected, rtol=5 / np.sqrt(2 * kernel.size))

    @pytest.mark.slow
    def test_grey_images_of_any_size_and_a_saved_model_work(self):
        model = models.build("resnet_20", 10, image_size=13, channels=1)
        path = f"{self.get_temp_dir()}/model.keras"
        model.save(path)
        images = np.random.default_rng(1).normal(size=(2, 13, 13, 1)).astype("float32")
        loaded = keras.models.load_model(path)
        for one, two in zip(loaded.get_weights(), model.get_weights(), strict=True):
            self.assertAllEqual(one, two)
        self.assertAllClose(loaded(images), model(images), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
