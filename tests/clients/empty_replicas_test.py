"""Replicas with fewer examples than others, or none, against training without a strategy."""

import functools
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras import layers
from tensorflow.python.distribute import values

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.private.replicas import padding
from tests.clients.comparison import ClientTest, assert_close, numbers, weights

# Some batches have fewer examples than replicas, or do not divide evenly.
SIZES = (8, 1, 5, 3)
DATA = numbers(sum(SIZES), 3) + 3.0, numbers(sum(SIZES), 1, seed=1)


def batches(*data):
    """Returns batches of the sizes `SIZES`."""
    ends = np.cumsum(SIZES)
    bounds = tf.data.Dataset.from_tensor_slices((ends - SIZES, ends))
    return bounds.map(lambda first, last: tuple(tf.constant(d)[first:last] for d in data))


def replica_context():
    return tf.distribute.get_replica_context()


def train(strategy, *layers_, loss="mse", model_class=None):
    """Trains one batch at a time; returns logs of each batch, evaluation and final weights."""
    with strategy.scope():
        inputs = layers.Input((3,))
        outputs = inputs
        for layer in layers_:
            outputs = layer()(outputs)
        model = (model_class or keras.Model)(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.05), loss, metrics=["mae"])
    losses = []
    for index in range(len(SIZES)):
        losses.append(model.fit(batches(*DATA).skip(index).take(1), verbose=0).history)
    return losses, model.evaluate(batches(*DATA), verbose=0, return_dict=True), weights(model)


def synchronized_batch_norm(strategy):
    def batch_norm():
        return layers.BatchNormalization(synchronized=True, momentum=0.5)

    hidden = functools.partial(layers.Dense, 4, "relu")
    return train(strategy, batch_norm, hidden, batch_norm, lambda: layers.Dense(1))


class MeanNorm(layers.Layer):
    """Subtracts the mean over the batch, using its own reduction."""

    def call(self, x, training=False):
        mean = tf.reduce_mean(x, axis=0)
        if replica_context() is not None:
            mean = replica_context().all_reduce("MEAN", mean)
        return x - 0.5 * mean


class SumNorm(layers.Layer):
    """Divides by the root mean square over the batch, using reduced sums and counts."""

    def call(self, x, training=False):
        sums = {"squares": tf.reduce_sum(tf.square(x), 0), "count": tf.shape(x)[0]}
        if replica_context() is not None:
            sums = replica_context().all_reduce(tf.distribute.ReduceOp.SUM, sums)
        return x / tf.sqrt(sums["squares"] / tf.cast(sums["count"], tf.float32) + 0.1)


class Contrast(layers.Layer):
    """Adds a contrastive loss of each example against the gathered batch."""

    def call(self, x, training=False):
        everyone = x
        if replica_context() is not None:
            everyone = replica_context().all_gather(x, axis=0)
        similar = tf.matmul(x, everyone, transpose_b=True)
        self.add_loss(0.1 * tf.reduce_mean(tf.reduce_logsumexp(similar, axis=1)))
        return x


def own_means(strategy):
    return train(strategy, lambda: layers.Dense(4, "tanh"), MeanNorm, lambda: layers.Dense(1))


def own_sums(strategy):
    return train(strategy, lambda: layers.Dense(4, "tanh"), SumNorm, lambda: layers.Dense(1))


def gathered(strategy):
    return train(strategy, lambda: layers.Dense(4, "tanh"), Contrast, lambda: layers.Dense(1))


class OwnSteps(keras.Model):
    """Returns losses and means in structures, together with metrics."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.running = keras.metrics.Mean(name="sums")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.running.update_state(tf.reduce_sum(x, 1))
        self.compute_metrics(x, y, predicted)
        mae = keras.losses.MeanAbsoluteError()(y, predicted)
        return {
            "loss_of_batch": loss,
            "mae_of_batch": mae,
            "mean": tf.reduce_mean(predicted),
            "loss": tf.reduce_max(y) * 0.0 + 3.0,
            "running": self.running.result(),
            "vector": tf.reduce_mean(x, 0),
            "pair": (tf.reduce_mean(y), {"square": tf.reduce_mean(tf.square(y))}),
        }

    def test_step(self, data):
        x, y = data
        predicted = self(x, training=False)
        return {
            **self.compute_metrics(x, y, predicted),
            "logarithm": tf.reduce_mean(tf.math.log(x)),
            "rows": tf.reduce_mean(tf.square(y - predicted), 0),
        }


def own_steps(strategy):
    return train(strategy, lambda: layers.Dense(1), model_class=OwnSteps)


class Returned(keras.Model):
    """Returns a number that is no metric."""

    def train_step(self, data):
        x, y = data
        return {"entropy": tf.reduce_mean(keras.losses.binary_crossentropy(y, tf.sigmoid(self(x))))}


def steps_that_run_eagerly(strategy):
    with strategy.scope():
        batch_norm = layers.BatchNormalization(synchronized=True)
        model = keras.Sequential([layers.Input((3,)), batch_norm, MeanNorm()])
        model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=True)
    return model.fit(*DATA, batch_size=8, verbose=0, shuffle=False).history, weights(model)


def entries_of_vocabularies(strategy):
    """Layers refuse what is not in their vocabularies, also empty texts and zeros."""
    texts = layers.StringLookup(vocabulary=["red", "blue"], mask_token=None, num_oov_indices=0)
    numbers_ = layers.IntegerLookup(vocabulary=[5, 7], mask_token=None, num_oov_indices=0)
    results = []
    for lookup, (one, other) in ((texts, ("red", "blue")), (numbers_, (5, 7))):
        x, y = tf.constant([[one], [other], [one]] * 3), numbers(9, 1)
        with strategy.scope():
            inputs = layers.Input((1,), dtype=x.dtype)
            model = keras.Model(inputs, layers.Dense(1)(layers.Embedding(2, 2)(lookup(inputs))))
            model.compile("sgd", "mse")
        history = model.fit(x, y[:, None], batch_size=8, shuffle=False, verbose=0).history
        results.append((history, weights(model), model.predict(x[:1], verbose=0)))
    return results


PROGRAMS = [
    synchronized_batch_norm,
    own_means,
    own_sums,
    gathered,
    own_steps,
    entries_of_vocabularies,
]


class EmptyReplicasTest(ClientTest, parameterized.TestCase):
    num_replicas = (4,)

    @parameterized.parameters(synchronized_batch_norm, own_means)
    @pytest.mark.default_cases(1)
    def test_reductions_and_numbers_are_those_of_the_batch(self, program):
        self.assert_same_without_strategy([program])

    def test_texts_of_replicas_may_differ_in_length(self):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.string)] * 2)
        def repeated(first, second):
            return padding._repeat_first(values.PerReplica([first, second])).values

        for rows, shape in ((2, (2, 5)), (0, (1, 3))):
            first, second = repeated(tf.fill([2, 3], "red"), tf.fill([rows, 5], "red"))
            self.assertEqual((first.shape, second.shape), ((2, 3), shape))

    @parameterized.parameters(own_sums, gathered, own_steps, entries_of_vocabularies)
    @pytest.mark.slow
    def test_further_numbers_are_those_of_the_batch(self, program):
        self.assert_same_without_strategy([program])

    @pytest.mark.slow
    def test_steps_that_run_eagerly(self):
        self.assert_same_without_strategy([steps_that_run_eagerly])

    def test_the_loss_of_a_last_batch_of_one(self):
        for num_replicas in (1, 2, 4):
            with TernGradStrategy(num_replicas, grad_bits=32).scope():
                inputs = layers.Input((1,))
                model = Returned(inputs, layers.Dense(1, kernel_initializer="zeros")(inputs))
                model.compile("sgd")
            history = model.fit(np.ones([9, 1]), np.ones([9, 1]), batch_size=8, verbose=0).history
            self.assertAllClose(history["entropy"], [np.log(2.0)])

    @pytest.mark.slow
    def test_predictions_of_means_over_the_batch(self):
        def predictions(strategy):
            with strategy.scope():
                model = keras.Sequential([layers.Input((3,)), SumNorm(), MeanNorm()])
            return [model.predict(batch[0], batch_size=8, verbose=0) for batch in batches(*DATA)]

        expected = self.run_program(predictions, tf.distribute.get_strategy())
        got = self.run_program(predictions, TernGradStrategy(4))
        # `predict` does not exchange the numbers of examples, which means over uneven parts need.
        for index in (0, 1):
            assert_close(got[index], expected[index], "with 4 replicas")

    @pytest.mark.slow
    def test_float64_statistics_stay_float64(self):
        def moving_mean(strategy):
            with strategy.scope():
                layer = layers.BatchNormalization(synchronized=True, momentum=0.5, dtype="float64")
                model = keras.Sequential([layers.Input((3,), dtype="float64"), layer])
                model.compile("sgd", "mse")
            x = DATA[0].astype(np.float64)
            model.fit(x, x, batch_size=8, verbose=0, shuffle=False)
            return layer.moving_mean.numpy(), layer.moving_variance.numpy()

        expected = self.run_program(moving_mean, tf.distribute.get_strategy())
        got = self.run_program(moving_mean, TernGradStrategy(3, grad_bits=32))
        for a, b in zip(expected, got, strict=True):
            self.assertEqual(b.dtype, np.float64)
            np.testing.assert_allclose(b, a, rtol=1e-12)


@pytest.mark.long
class TwoReplicasTest(ClientTest):
    num_replicas = (2,)

    def test_reductions_and_numbers_are_those_of_the_batch(self):
        self.assert_same_without_strategy([*PROGRAMS, steps_that_run_eagerly])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
