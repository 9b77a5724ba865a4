"""Every network has its published size, starts from its seed alone and can be trained."""

import dataclasses
import math
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf import models


@dataclasses.dataclass(frozen=True)
class Network:
    """Known properties of a network.

    Args:
        num_classes: number of outputs for `num_weights`.
        num_weights: number of trainable weights with these outputs and the usual image size.
        num_variables: number of trainable variables.
        num_dropouts: number of dropout layers.
        small_image: smallest image size that it accepts.
        largest_image: largest image size that it accepts; None: any.
    """

    num_classes: int
    num_weights: int
    num_variables: int
    num_dropouts: int
    small_image: int
    largest_image: int | None = None


NETWORKS = {
    "lenet": Network(10, 1_256_080, 8, 0, 1),
    "cifar10_alexnet": Network(10, 1_068_298, 10, 0, 1),
    "alexnet": Network(1001, 60_969_321, 26, 2, 57),
    "alexnet_v2": Network(1001, 50_308_009, 16, 2, 195, 226),
    "vgg_a": Network(1001, 132_867_433, 22, 2, 32),
    "vgg_16": Network(1001, 138_361_641, 32, 2, 32),
    "googlenet": Network(1001, 6_618_649, 116, 1, 193, 224),
    "inception_v3": Network(1001, 27_145_970, 196, 1, 107),
    "resnet_20": Network(10, 269_722, 59, 0, 1),
    "resnet_32": Network(10, 464_154, 95, 0, 1),
    "resnet_50": Network(1001, 25_559_081, 161, 0, 1),
}
# `vgg_test.py` has default tests for the vgg networks, which have many more weights.
SHALLOW = ("lenet", "cifar10_alexnet", "resnet_20")
LARGE = ("alexnet", "alexnet_v2", "googlenet", "inception_v3", "resnet_50", "vgg_16", "vgg_a")


def count(variables):
    """Returns the number of elements of all variables."""
    return sum(math.prod(variable.shape) for variable in variables)


class NetworksTest(tf.test.TestCase, parameterized.TestCase):
    def test_every_network_is_tested(self):
        self.assertEqual(sorted(NETWORKS), models.available())

    @parameterized.parameters(*(name for name in NETWORKS if name not in LARGE))
    @pytest.mark.default_cases(2)
    def test_at_its_usual_size_it_has_the_published_weights_and_takes_a_step(self, name):
        self.assert_it_has_the_published_weights_and_takes_a_step(name)

    @parameterized.parameters(*LARGE)
    @pytest.mark.slow
    def test_large_it_has_the_published_weights_and_takes_a_step(self, name):
        self.assert_it_has_the_published_weights_and_takes_a_step(name)

    def assert_it_has_the_published_weights_and_takes_a_step(self, name):
        known = NETWORKS[name]
        model = models.build(name, known.num_classes)
        self.assertEqual(count(model.trainable_variables), known.num_weights)
        self.assertLen(model.trainable_variables, known.num_variables)
        moving = [v for v in model.non_trainable_variables if "moving" in v.path]
        shifts = [v for v in model.trainable_variables if v.name == "beta"]
        self.assertEqual(count(moving), 2 * count(shifts))
        size, channels = models.input_shape(name)
        self.assertEqual(model.input_shape, (None, size, size, channels))
        for output in model.outputs:
            self.assertEqual(output.shape, (None, known.num_classes))
        self.assert_a_step_is_finite(model)

    @parameterized.parameters(*SHALLOW)
    def test_small_it_starts_from_its_seed_decays_kernels_and_takes_a_step(self, name):
        self.check_small(name)

    @parameterized.parameters(*(name for name in NETWORKS if name not in SHALLOW))
    @pytest.mark.long
    def test_small_deep_it_starts_from_its_seed_decays_kernels_and_takes_a_step(self, name):
        self.check_small(name)

    def check_small(self, name):
        """Checks a network on small images: start from the seed, and one step."""
        known = NETWORKS[name]
        size = max(known.small_image, 8)
        model, again = (models.build(name, 7, size, seed=5, weight_decay=0.01) for _ in range(2))
        for one, two in zip(model.get_weights(), again.get_weights(), strict=True):
            self.assertAllEqual(one, two)
        del again
        self.assert_layers_start_apart(model)
        self.assert_decay_is_of_kernels(model, 0.01)
        self.assert_outputs_are_linear_logits(model)
        self.assert_a_step_is_finite(model)
        drops = [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
        self.assertEqual([layer.rate for layer in drops], [0.5] * known.num_dropouts)

    def assert_layers_start_apart(self, model):
        kernels = {}
        for variable in model.trainable_variables:
            if variable.name == "kernel":
                start = tuple(np.ravel(variable.numpy())[:20] / np.std(variable.numpy()))
                kernels[start] = variable.path
        names = [v.path for v in model.trainable_variables if v.name == "kernel"]
        self.assertLen(kernels, len(names))

    def assert_decay_is_of_kernels(self, model, weight_decay):
        decayed = [
            layer.kernel.numpy().astype(np.float64)
            for layer in model.layers
            if getattr(layer, "kernel_regularizer", None) is not None
        ]
        expected = weight_decay / 2 * sum(np.sum(np.square(kernel)) for kernel in decayed)
        # All terms are positive, so the error is at most the depth of the sum, in float32
        # roundings.
        self.assertAllClose(sum(float(loss) for loss in model.losses), expected, rtol=1e-5)
        if model.name != "cifar10_alexnet":
            kernels = [v for v in model.trainable_variables if v.name == "kernel"]
            self.assertLen(decayed, len(kernels))

    def assert_outputs_are_linear_logits(self, model):
        weights = models.output_loss_weights(model.name)
        self.assertEqual(model.output_names, list(weights))
        self.assertEqual(next(iter(weights.items())), ("logits", 1.0))
        for name in weights:
            self.assertEqual(model.get_layer(name).activation.__name__, "linear")

    def assert_a_step_is_finite(self, model):
        images = np.random.default_rng(1).normal(size=(2, *model.input_shape[1:]))
        weights = models.output_loss_weights(model.name)
        with tf.GradientTape() as tape:
            outputs = model(images.astype("float32"), training=True)
            loss = tf.add_n(model.losses)
            for weight, logits in zip(weights.values(), tf.nest.flatten(outputs), strict=True):
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits([1, 6], logits)
                loss += weight * tf.reduce_mean(losses)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        self.assertTrue(np.isfinite(loss))
        for gradient in gradients:
            self.assertTrue(bool(tf.reduce_all(tf.math.is_finite(gradient))))

    def test_images_smaller_than_the_windows_are_refused(self):
        for name, known in NETWORKS.items():
            sizes = [known.small_image - 1]
            if known.largest_image is not None:
                sizes.append(known.largest_image + 1)
            for size in filter(None, sizes):
                with self.assertRaisesRegex(
                    ValueError, f"`image_size` .* {name}.*image_size={size}"
                ):
                    models.build(name, 7, size)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
