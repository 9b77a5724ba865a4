"""The loss is the weighted cross-entropy of the outputs plus regularization."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.training.optimization import losses


def cross_entropy(labels, logits, smoothing):
    """Returns the mean cross-entropy, computed one example after another."""
    found = []
    for label, row in zip(labels, logits.astype(np.float64), strict=True):
        probabilities = np.exp(row) / np.sum(np.exp(row))
        target = np.full(len(row), smoothing / len(row))
        target[label] += 1 - smoothing
        found.append(-np.sum(target * np.log(probabilities)))
    return np.mean(found)


class LossesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        generator = np.random.default_rng(0)
        self.images = generator.normal(size=(6, 4)).astype(np.float32)
        self.labels = generator.integers(0, 3, 6).astype(np.int32)

    def logs(self, net, outputs, label_smoothing):
        """Returns Keras' logs of a step that keeps the weights, and the logits of each output."""
        inputs = keras.Input((4,))
        regularizer = keras.regularizers.L2(0.25)
        logits = [
            keras.layers.Dense(3, name=name, kernel_regularizer=regularizer)(inputs)
            for name in outputs
        ]
        model = keras.Model(inputs, logits if len(logits) > 1 else logits[0])
        model.compile(keras.optimizers.SGD(0.0), **losses.compile_arguments(net, label_smoothing))
        examples = tf.data.Dataset.from_tensors((self.images, self.labels))
        examples = losses.with_targets(net, examples)
        logs = model.fit(examples, shuffle=False, verbose=0).history
        # Biases are not regularized.
        kernels = [w.astype(np.float64) for w in model.get_weights() if w.ndim > 1]
        regularization = 0.25 * sum(np.sum(np.square(kernel)) for kernel in kernels)
        computed = tf.nest.map_structure(np.asarray, tf.nest.flatten(model(self.images)))
        return {name: values[0] for name, values in logs.items()}, computed, regularization

    def test_one_output(self):
        for smoothing in (0.0, 0.1):
            logs, (logits,), regularization = self.logs("lenet", ["logits"], smoothing)
            expected = cross_entropy(self.labels, logits, smoothing)
            self.assertAllClose(losses.cross_entropy("lenet", logs), expected, rtol=1e-5)
            self.assertAllClose(logs["loss"], expected + regularization, rtol=1e-5)
            hits = np.mean(np.argmax(logits, axis=1) == self.labels)
            self.assertAllClose(losses.precision_at_1("lenet", logs), hits)

    def test_auxiliary_logits_count_for_two_fifths(self):
        for smoothing in (0.0, 0.1):
            logs, (logits, auxiliary), regularization = self.logs(
                "inception_v3", ["logits", "aux_logits"], smoothing
            )
            expected = cross_entropy(self.labels, logits, smoothing)
            expected += 0.4 * cross_entropy(self.labels, auxiliary, smoothing)
            self.assertAllClose(losses.cross_entropy("inception_v3", logs), expected, rtol=1e-5)
            hits = np.mean(np.argmax(logits, axis=1) == self.labels)
            self.assertAllClose(losses.precision_at_1("inception_v3", logs), hits)
            self.assertAllClose(logs["loss"], expected + regularization, rtol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
