"""The small AlexNet of CIFAR-10, layer by layer, and its normalization."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models
from terngrad_tf.models import lrn


class Cifar10AlexnetTest(tf.test.TestCase):
    def test_its_layers_have_the_published_order_and_shapes(self):
        model = models.build("cifar10_alexnet", num_classes=10)
        self.assertEqual(
            [(layer.name, tuple(layer.output.shape)[1:]) for layer in model.layers],
            [
                ("images", (24, 24, 3)),
                ("conv1", (24, 24, 64)),
                ("pool1", (12, 12, 64)),
                ("lrn1", (12, 12, 64)),
                ("conv2", (12, 12, 64)),
                ("lrn2", (12, 12, 64)),
                ("pool2", (6, 6, 64)),
                ("flatten", (6 * 6 * 64,)),
                ("fc3", (384,)),
                ("fc4", (192,)),
                ("logits", (10,)),
            ],
        )
        decayed = [layer.name for layer in model.layers if getattr(layer, "losses", None)]
        self.assertEqual(decayed, ["fc3", "fc4"])
        biases = {"conv1": 0.0, "conv2": 0.1, "fc3": 0.1, "fc4": 0.1, "logits": 0.0}
        for name, start in biases.items():
            _, bias = model.get_layer(name).get_weights()
            self.assertAllClose(bias, np.full_like(bias, start))

    def test_at_32_pixels_it_has_1756426_weights(self):
        self.assertEqual(models.build("cifar10_alexnet", 10, 32).count_params(), 1_756_426)


class LocalResponseNormalizationTest(tf.test.TestCase):
    def test_it_follows_its_formula(self):
        x = np.random.default_rng(1).normal(size=(2, 3, 3, 7)).astype("float32")
        layer = lrn.LocalResponseNormalization(radius=2, bias=2.0, alpha=0.3, beta=0.75)
        exact = x.astype(np.float64)
        expected = np.empty_like(exact)
        for c in range(7):
            strength = np.sum(exact[..., max(c - 2, 0) : c + 3] ** 2, axis=-1)
            expected[..., c] = exact[..., c] / (2.0 + 0.3 * strength) ** 0.75
        self.assertAllClose(layer(x), expected, rtol=1e-5)

    def test_in_float16_it_is_rounded_only_at_its_end(self):
        x = np.linspace(-3000, 3000, 64, dtype=np.float16).reshape(2, 2, 2, 8)
        arguments = {"radius": 4, "bias": 1.0, "alpha": 0.001 / 9, "beta": 0.75}
        whole = lrn.LocalResponseNormalization(**arguments)(x.astype(np.float32))
        half = lrn.LocalResponseNormalization(**arguments, dtype="mixed_float16")(x)
        self.assertEqual(half.dtype, tf.float16)
        self.assertAllEqual(half, tf.cast(whole, tf.float16))

    def test_a_saved_model_with_it_loads(self):
        model = models.build("cifar10_alexnet", num_classes=10, image_size=8)
        path = f"{self.get_temp_dir()}/model.keras"
        model.save(path)
        images = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype("float32")
        loaded = keras.models.load_model(path)
        for one, two in zip(loaded.get_weights(), model.get_weights(), strict=True):
            self.assertAllEqual(one, two)
        self.assertAllClose(loaded(images), model(images), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
