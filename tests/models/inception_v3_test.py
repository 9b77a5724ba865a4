"""Inception-v3: the published network, its auxiliary head, initial values."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models

SMALL = 107


def convolutions(model):
    """Returns the convolutions before the prediction."""
    return [
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Conv2D) and not layer.name.startswith("aux")
    ]


def number(layer):
    """Returns the position of a layer in the order of creation, from its name."""
    return int(layer.name.removeprefix("conv2d").removeprefix("_") or 0)


class InceptionV3Test(tf.test.TestCase):
    @pytest.mark.slow
    def test_with_the_same_weights_it_predicts_as_the_network_of_keras_applications(self):
        ours = models.build("inception_v3", 7, SMALL)
        theirs = keras.applications.InceptionV3(
            weights=None, classes=7, input_shape=(SMALL, SMALL, 3), classifier_activation=None
        )
        rng = np.random.default_rng(1)
        in_order = (
            sorted(convolutions(ours), key=lambda conv: conv.kernel_initializer.seed),
            sorted(convolutions(theirs), key=number),
        )
        for one, two in zip(*in_order, strict=True):
            fan_in = np.prod(one.kernel.shape[:3])
            kernel = rng.normal(0, (2 / fan_in) ** 0.5, one.kernel.shape)
            one.set_weights([kernel])
            two.set_weights([kernel])
        theirs.layers[-1].set_weights(ours.get_layer("logits").get_weights())
        images = rng.normal(size=(2, SMALL, SMALL, 3)).astype("float32")
        expected = theirs(images)
        self.assertGreater(np.std(expected), 0.01)
        logits, _ = ours(images)
        self.assertAllClose(logits, expected, rtol=1e-4, atol=1e-4)

    @pytest.mark.slow
    def test_the_auxiliary_head_branches_off_the_last_17x17_module(self):
        model = models.build("inception_v3", 7)
        shapes = {
            "pool5": (35, 35, 192),
            "mixed_5b": (35, 35, 256),
            "mixed_5d": (35, 35, 288),
            "mixed_6a": (17, 17, 768),
            "mixed_6e": (17, 17, 768),
            "mixed_7a": (8, 8, 1280),
            "mixed_7c": (8, 8, 2048),
            "aux_pool": (5, 5, 768),
            "aux_conv1": (5, 5, 128),
            "aux_conv2": (1, 1, 768),
        }
        for name, shape in shapes.items():
            self.assertEqual(model.get_layer(name).output.shape[1:], shape, msg=name)
        head = keras.Model(model.get_layer("mixed_6e").output, model.get_layer("aux_logits").output)
        self.assertLen([x for x in head.layers if isinstance(x, keras.layers.Conv2D)], 2)
        sizes = [np.prod(variable.shape) for variable in head.trainable_variables]
        # With 1001 classes: 3,326,569.
        self.assertEqual(sum(sizes), 3_326_569 - (1001 - 7) * (768 + 1))

    @pytest.mark.slow
    def test_kernels_are_normals_cut_at_two_deviations(self):
        model = models.build("inception_v3", 1001, SMALL)
        deviations = dict.fromkeys([conv.name for conv in convolutions(model)], 0.1)
        deviations |= {"aux_conv1": 0.1, "aux_conv2": 0.01, "aux_logits": 0.001, "logits": 0.01}
        self.assertLen(deviations, 98)
        for name, stddev in deviations.items():
            kernel = model.get_layer(name).kernel.numpy()
            self.assertLessEqual(np.abs(kernel).max(), 2 * stddev)
            tolerance = 5 / np.sqrt(2 * kernel.size)
            self.assertAllClose(kernel.std() / stddev, 0.8796, rtol=tolerance)
        for norm in model.layers:
            if isinstance(norm, keras.layers.BatchNormalization):
                self.assertEqual((norm.momentum, norm.epsilon), (0.9997, 0.001))
                self.assertEqual((norm.center, norm.scale), (True, False))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
