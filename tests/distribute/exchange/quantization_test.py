"""Tests of the options that select the scale of rounding."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

import terngrad_tf
from terngrad_tf import ternary
from terngrad_tf.distribute import Quantization
from tests.distribute import strategy_options

KERNEL = "net/hidden/kernel"


def fit(num_nodes=2, steps=3, **options):
    """Trains a small network. Returns its strategy, and the bytes of each step."""
    strategy = terngrad_tf.TernGradStrategy(
        num_nodes, statistics_freq=1, **strategy_options.arguments(**options)
    )
    keras.utils.set_random_seed(0)
    with strategy.scope():
        layers = [keras.Input([128]), keras.layers.Dense(256, "relu", name="hidden")]
        model = keras.Sequential(layers, name="net")
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    rng = np.random.default_rng(0)
    examples = rng.normal(size=(16 * steps, 128)), rng.normal(size=(16 * steps, 256))
    received = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: received.append(strategy.traffic.received_bytes)
    )
    model.fit(*examples, batch_size=16, verbose=0, callbacks=[note])
    return strategy, received


class QuantizationTest(tf.test.TestCase, parameterized.TestCase):
    @pytest.mark.slow
    def test_streams_keep_the_budget(self):
        strategy, received = fit(bits_per_element=0.1)
        self.assertEqual(strategy.traffic.wire, "sparse")
        num_elements = strategy.traffic.float32_bytes / 4
        # Messages are padded and state their lengths.
        self.assertLess(8 * max(received), 1.1 * 0.1 * num_elements + 32 * 8)
        codes = strategy.gradient_statistics.values()
        nonzero = sum(c.negative + c.positive for c in codes)
        self.assertBetween(nonzero, 1, 0.02 * num_elements)

    def test_finer_codes_use_all_levels_of_their_bits(self):
        levels = [Quantization(grad_bits=bits).levels for bits in (1, 2, 3, 4, 8, 32)]
        self.assertEqual(levels, [1, 2, 3, 7, 127, 1])
        of_paper = [Quantization(rotate=False, grad_bits=bits) for bits in (1, 4)]
        self.assertEqual([one.clip_factor for one in of_paper], [2.5, "auto"])
        strategy, received = fit(grad_bits=4, rotate=False)
        self.assertEqual(strategy.traffic.wire, "allgather")
        # A word holds eight codes of 15 values; there are two scales.
        self.assertBetween(strategy.traffic.compression_ratio, 7.9, 8.0)
        codes = strategy.gradient_statistics[KERNEL]
        self.assertEqual(codes.negative + codes.zero + codes.positive, 128 * 256)
        # Ternary codes are 0 more often.
        ternary_codes = fit(rotate=False)[0].gradient_statistics[KERNEL]
        self.assertLess(codes.zero, 0.7 * ternary_codes.zero)

    @pytest.mark.slow
    def test_auto_takes_the_scale_for_the_number_of_replicas(self):
        rng = np.random.default_rng(1)
        gradient = tf.constant(rng.standard_t(3, size=5000), tf.float32)
        quantization = Quantization(rotate=False, clip_factor="auto")
        for num in (1, 16):
            (scale,) = quantization.local_scales([gradient], num)
            expected = ternary.local_scale(gradient, "auto", num_replicas=num)
            self.assertAllClose(scale, expected, rtol=1e-6)
        strategy, _ = fit(2, 1, rotate=False, clip_factor="auto")
        of_two = strategy.gradient_statistics[KERNEL].scale
        strategy, _ = fit(4, 1, rotate=False, clip_factor="auto")
        self.assertNotEqual(strategy.gradient_statistics[KERNEL].scale, of_two)

    @parameterized.parameters(
        ({"bits_per_element": 0.01}, "`bits_per_element` must be a number from 0.02 to 1.6"),
        ({"bits_per_element": "few"}, "`bits_per_element` must be a number from 0.02 to 1.6"),
        (
            {"grad_bits": 0},
            r"`grad_bits` must be 1 \(ternary\), 2 \(five values\), 3 to 8 .* or 32",
        ),
        ({"grad_bits": 9}, "`grad_bits` must be 1"),
        ({"grad_bits": True}, "`grad_bits` must be 1"),
        ({"grad_bits": 4, "bits_per_element": 0.3}, "`bits_per_element` must be None with grad"),
        ({"grad_bits": 4, "wire": "sparse"}, "`wire` must be none of .*ternary.*grad_bits=4"),
        (
            {"grad_bits": 32, "bits_per_element": 0.3},
            "`bits_per_element` must be None with grad_bits=32, which sends floats; grad_bits=1 ",
        ),
        ({"grad_bits": 32, "wire": "sparse"}, "`wire` must be none of .*=32; grad_bits=1 takes"),
        (
            {"rotate": False, "clip_factor": "none"},
            '`clip_factor` must be 0 .*, a number from .*, or "auto"',
        ),
        ({"rotate": False, "clip_factor": 1e-38}, "`clip_factor` must be 0 .* from 1e-05"),
        ({"rotate": False, "clip_factor": True}, "`clip_factor` must be 0 "),
        (
            {"bits_per_element": 0.3, "wire": "alltoall"},
            "`wire` must be one of .*with bits_per_element",
        ),
    )
    def test_bad_options_are_refused(self, options, message):
        with self.assertRaisesRegex(ValueError, f"{message}.*Received"):
            terngrad_tf.TernaryAllReduce(**strategy_options.arguments(**options))

    @pytest.mark.slow
    def test_logits_may_be_frozen_or_belong_to_another_optimizer(self):
        def layers(name, trainable=True):
            body, head = keras.layers.Dense(3), keras.layers.Dense(2, name=name)
            head.trainable = trainable
            return body, head

        def fit(strategy, *arguments):
            with strategy.scope():
                model = keras.Sequential(layers(*arguments))
                model.compile("sgd", "mse")
            model.fit(np.ones([4, 4]), np.ones([4, 2]), verbose=0)

        def loop(strategy, *arguments):
            with strategy.scope():
                body, head = layers(*arguments)
                body.build([None, 4])
                head.build([None, 3])
                optimizers = keras.optimizers.SGD(), keras.optimizers.SGD()

            @tf.function
            def step():
                def replica():
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(head(body(tf.ones([2, 4]))))
                    parts = body.trainable_variables, head.trainable_variables
                    gradients = tape.gradient(loss, parts)
                    for optimizer, part, gradient in zip(optimizers, parts, gradients, strict=True):
                        if part:
                            optimizer.apply(gradient, part)

                strategy.run(replica)

            step()

        for train in (fit, loop):
            for arguments in (("logits",), ("my_logits", False)):
                train(
                    terngrad_tf.TernGradStrategy(
                        2, quantization=terngrad_tf.Quantization(quantize_logits=False)
                    ),
                    *arguments,
                )
            with self.assertRaisesRegex(ValueError, "`quantize_logits=False` needs a layer whose"):
                train(
                    terngrad_tf.TernGradStrategy(
                        2, quantization=terngrad_tf.Quantization(quantize_logits=False)
                    ),
                    "out",
                )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
