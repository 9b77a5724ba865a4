"""Networks by name."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models


class RegistryTest(tf.test.TestCase):
    def test_the_same_seed_gives_the_same_weights_and_another_seed_others(self):
        first, second, other = (
            models.build("lenet", num_classes=10, seed=seed).get_weights() for seed in (3, 3, 4)
        )
        self.assertAllEqual(first[0], second[0])
        for one, two in zip(first, second, strict=True):
            self.assertAllEqual(one, two)
        self.assertFalse(np.array_equal(first[0], other[0]))

    def test_most_networks_have_one_output_and_plain_targets(self):
        for name in ("lenet", "alexnet", "googlenet"):
            self.assertEqual(models.output_loss_weights(name), {"logits": 1.0})
            self.assertEqual(models.label_smoothing(name), 0.0)

    def test_inception_v3_has_two_outputs_and_smooth_targets(self):
        self.assertEqual(
            models.output_loss_weights("inception_v3"), {"logits": 1.0, "aux_logits": 0.4}
        )
        self.assertEqual(models.label_smoothing("inception_v3"), 0.1)

    def test_each_family_prepares_photographs_in_its_way(self):
        self.assertEqual(models.preprocessing("alexnet"), "alexnet")
        for name in ("alexnet_v2", "googlenet", "inception_v3"):
            self.assertEqual(models.preprocessing(name), "inception")
        for name in ("vgg_a", "vgg_16"):
            self.assertEqual(models.preprocessing(name), "vgg")
        for name in ("resnet_20", "resnet_32", "resnet_50"):
            self.assertEqual(models.preprocessing(name), "resnet")

    def test_an_unknown_network_is_refused_with_the_nearest_name(self):
        with self.assertRaisesRegex(ValueError, "one of .*lenet.*did you mean 'lenet'"):
            models.build("lennet", num_classes=10)
        for question in (
            models.input_shape,
            models.label_smoothing,
            models.output_loss_weights,
            models.preprocessing,
        ):
            with self.assertRaisesRegex(ValueError, "`net` must be one of .*lenet"):
                question("lennet")

    def test_numbers_outside_their_range_are_refused_by_name_and_value(self):
        for argument, value in (
            ("num_classes", 0),
            ("image_size", -1),
            ("channels", 1.5),
            ("weight_decay", -0.1),
            ("weight_decay", float("nan")),
            ("dropout_keep_prob", 0.0),
        ):
            arguments = {"num_classes": 10, argument: value}
            with self.assertRaisesRegex(ValueError, f"`{argument}` must be .* {argument}={value}"):
                models.build("lenet", **arguments)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
