"""Warnings about losses that custom steps do not divide by the number of replicas, or twice."""

import functools
import sys
import warnings

import keras
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras import ops

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.private.keras import loss_scale
from tests.clients.comparison import numbers

BATCH = 8


def mask(y):
    return tf.cast(y > 0, tf.float32)


def kept(y, p):
    return tf.reduce_sum(mask(y) * tf.square(y - p))


def of_unknown_length(y):
    return tf.raw_ops.PlaceholderWithDefault(input=y, shape=[None, 1])


_NOT_DIVIDED = {
    "mean": lambda y, p, keras_loss, n: tf.reduce_mean(tf.square(y - p)),
    "root of a mean": lambda y, p, keras_loss, n: tf.sqrt(tf.reduce_mean(tf.square(y - p)) + 1e-9),
    "mean of Keras, and a penalty": lambda y, p, keras_loss, n: (
        ops.mean(ops.square(y - p)) + 0.01 * tf.reduce_sum(p * p)
    ),
    "loss of Keras, and a mean": lambda y, p, keras_loss, n: (
        keras_loss(y, p) + tf.reduce_mean(p * p)
    ),
    "mean of unknown rank": lambda y, p, keras_loss, n: tf.reduce_mean(
        tf.raw_ops.PlaceholderWithDefault(input=tf.square(y - p), shape=None)
    ),
    "negative mean": lambda y, p, keras_loss, n: -tf.reduce_mean(-tf.square(y - p)),
    "mean over one axis after the other": lambda y, p, keras_loss, n: tf.reduce_mean(
        tf.reduce_mean(tf.square(y - p), axis=1), axis=0
    ),
    "mean of a list of means": lambda y, p, keras_loss, n: tf.reduce_mean(
        [tf.reduce_mean(tf.square(y - p)), tf.reduce_mean(tf.abs(y - p))]
    ),
    "mean of a list of losses of each example": lambda y, p, keras_loss, n: tf.reduce_mean(
        [tf.square(y - p), tf.abs(y - p)]
    ),
    "mean with a mask": lambda y, p, keras_loss, n: kept(y, p) / tf.reduce_sum(mask(y)),
    "mean with a mask that may keep nothing": lambda y, p, keras_loss, n: (
        kept(y, p) / tf.maximum(tf.reduce_sum(mask(y)), 1.0)
    ),
    "mean with a mask, and a small number": lambda y, p, keras_loss, n: (
        kept(y, p) / (tf.reduce_sum(mask(y)) + 1e-6)
    ),
    "sum over the replica's examples": lambda y, p, keras_loss, n: (
        tf.reduce_sum(tf.square(y - p)) / tf.cast(tf.shape(y)[0], tf.float32)
    ),
    "sum over the replica's examples, of unknown number": lambda y, p, keras_loss, n: (
        tf.reduce_sum(tf.square(y - p)) / tf.cast(tf.shape(of_unknown_length(y))[0], tf.float32)
    ),
    "overlap": lambda y, p, keras_loss, n: (
        1 - (2 * tf.reduce_sum(y * p) + 1) / (tf.reduce_sum(y * y) + tf.reduce_sum(p * p) + 1)
    ),
}
_DIVIDED_TWICE = {
    "divided": lambda y, p, keras_loss, n: keras_loss(y, p) / n,
    "multiplied": lambda y, p, keras_loss, n: (1.0 / n) * keras_loss(y, p),
}
_RIGHT = {
    "loss of Keras": lambda y, p, keras_loss, n: keras_loss(y, p),
    "a part of a loss of Keras": lambda y, p, keras_loss, n: 0.5 * keras_loss(y, p),
    "mean of losses of Keras": lambda y, p, keras_loss, n: (
        sum([keras_loss(y, p) for _ in range(n)]) / n
    ),
    "mean of a list of losses of Keras": lambda y, p, keras_loss, n: tf.reduce_mean(
        [keras_loss(y, p), keras_loss(y, 2 * p)]
    ),
    "divided mean of a list of means": lambda y, p, keras_loss, n: (
        tf.reduce_mean([tf.reduce_mean(tf.square(y - p)), tf.reduce_mean(tf.abs(y - p))]) / n
    ),
    "divided mean": lambda y, p, keras_loss, n: tf.reduce_mean(tf.square(y - p)) / n,
    "divided root of a mean": lambda y, p, keras_loss, n: ops.sqrt(ops.mean(ops.square(y - p))) / n,
    "sum over the batch's size": lambda y, p, keras_loss, n: (
        tf.reduce_sum(tf.reduce_mean(tf.square(y - p), axis=1)) / BATCH
    ),
    "divided mean with a mask": lambda y, p, keras_loss, n: kept(y, p) / tf.reduce_sum(mask(y)) / n,
    "sum divided before a mask": lambda y, p, keras_loss, n: (
        (1 / n) * kept(y, p) / tf.reduce_sum(mask(y))
    ),
    "sum over all masks, if they are alike": lambda y, p, keras_loss, n: (
        kept(y, p) / (n * tf.reduce_sum(mask(y)) + 1e-6)
    ),
    "sum over the replica's examples, multiplied": lambda y, p, keras_loss, n: (
        tf.reduce_sum(tf.square(y - p)) / tf.cast(tf.shape(y)[0] * n, tf.float32)
    ),
    "sum over gathered examples": lambda y, p, keras_loss, n: (
        tf.reduce_sum(tf.square(y - p))
        / tf.cast(
            tf.shape(tf.distribute.get_replica_context().all_gather(y, axis=0))[0], tf.float32
        )
    ),
    "sum over all replicas' examples": lambda y, p, keras_loss, n: (
        tf.reduce_sum(tf.square(y - p))
        / tf.distribute.get_replica_context().all_reduce("sum", tf.cast(tf.shape(y)[0], tf.float32))
    ),
    "sum over the length of an example": lambda y, p, keras_loss, n: (
        tf.reduce_sum(tf.square(y - p)) / tf.cast(tf.shape(y)[1], tf.float32)
    ),
    "sum of divided means": lambda y, p, keras_loss, n: (
        tf.reduce_mean(tf.square(y - p)) / n + tf.reduce_mean(tf.abs(y - p)) / n
    ),
    "mean with a mask over all replicas": lambda y, p, keras_loss, n: (
        kept(y, p) / tf.distribute.get_replica_context().all_reduce("sum", tf.reduce_sum(mask(y)))
    ),
    "sum over a mean": lambda y, p, keras_loss, n: kept(y, p) / tf.reduce_mean(mask(y)),
    "loss of Keras over a sum": lambda y, p, keras_loss, n: (
        keras_loss(y, p) / tf.reduce_sum(mask(y))
    ),
    "TensorFlow's average": lambda y, p, keras_loss, n: tf.nn.compute_average_loss(
        tf.square(y - p)[:, 0], global_batch_size=BATCH
    ),
    # Has 2**40 paths to the loss of Keras.
    "doubled often": lambda y, p, keras_loss, n: functools.reduce(
        lambda value, _: value + value, range(40), 2.0**-40 * keras_loss(y, p)
    ),
}


_SUMMED = {
    "as they are": lambda gradients: gradients,
    "clipped by their norm": lambda gradients: tf.clip_by_global_norm(gradients, 1.0)[0],
    "clipped by value": lambda gradients: [tf.clip_by_value(g, -1.0, 1.0) for g in gradients],
    "without NaN": lambda gradients: [tf.where(tf.math.is_nan(g), 0.0, g) for g in gradients],
    "with more": lambda gradients: [g + tf.ones_like(g) for g in gradients],
}


def summed(gradients):
    return tf.distribute.get_replica_context().all_reduce("sum", gradients)


def train(num_replicas, loss, change=lambda gradients, n: gradients, is_distributed=True):
    """Trains with a custom loop; returns its warnings."""
    strategy = TernGradStrategy(num_replicas, grad_bits=32)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        keras_loss = keras.losses.MeanSquaredError()

    def replica(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x), keras_loss, num_replicas)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply(change(gradients, num_replicas), model.trainable_variables)

    step = tf.function(lambda *batch: strategy.run(replica, args=batch))
    data = tf.data.Dataset.from_tensor_slices((numbers(16, 3), numbers(16, 1))).batch(BATCH)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in strategy.experimental_distribute_dataset(data) if is_distributed else data:
            step(*batch)
    messages = [str(w.message) for w in caught]
    return [message for message in messages if "rate" in message]


class LossScaleTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*_NOT_DIVIDED)
    @pytest.mark.default_cases(5)
    def test_a_loss_that_is_not_divided(self, name):
        (message,) = train(2, _NOT_DIVIDED[name])
        self.assertRegex(message, r"The optimizer '(?i:sgd)_?\d*' trains at 2 times the rate")
        self.assertNotIn("\n", message)
        self.assertEmpty(train(1, _NOT_DIVIDED[name]))

    @parameterized.parameters(0.5, 0.9)
    def test_an_average_of_means_that_is_not_divided(self, share):
        def loss(y, p, keras_loss, n):
            first, second = tf.reduce_mean(tf.square(y - p)), tf.reduce_mean(tf.abs(y - p))
            return share * first + (1 - share) * second

        (message,) = train(4, loss)
        self.assertIn("trains at 4 times the rate", message)
        # On two replicas, halves may be the division.
        self.assertLen(train(2, loss), int(share != 0.5))

    @parameterized.parameters(*_DIVIDED_TWICE)
    def test_a_loss_that_is_divided_twice(self, name):
        (message,) = train(4, _DIVIDED_TWICE[name])
        self.assertRegex(message, r"The optimizer '(?i:sgd)_?\d*' trains at 1/4 of the rate")
        # A factor of one half may be intended.
        self.assertEmpty(train(2, _DIVIDED_TWICE[name]))

    @parameterized.parameters(*_RIGHT)
    @pytest.mark.default_cases(7)
    def test_a_loss_that_is_right(self, name):
        for num_replicas in (2, 4):
            self.assertEmpty(train(num_replicas, _RIGHT[name]))

    @parameterized.parameters("loss of Keras", "TensorFlow's average")
    def test_a_batch_that_all_replicas_get(self, name):
        (message,) = train(2, _RIGHT[name], is_distributed=False)
        self.assertRegex(message, "gradients of the same examples from all 2 replicas")
        self.assertNotIn("\n", message)
        self.assertEmpty(train(1, _RIGHT[name], is_distributed=False))

    @parameterized.parameters("numbers of a loop", "numbers of a function", "sums of gradients")
    def test_values_that_all_replicas_get(self, name):
        strategy = TernGradStrategy(2, grad_bits=32)
        with strategy.scope():
            weights = tf.Variable(tf.ones([4, 1]))
            optimizer = keras.optimizers.SGD(0.1)
            optimizer.build([weights])

        @tf.function
        def drawn(state):
            return tf.cond(
                tf.reduce_sum(state) > 0.0, lambda: state + tf.random.normal([8, 4]), lambda: state
            )

        def examples(state):
            if name == "numbers of a function":
                return drawn(state)
            for _ in tf.range(3):
                state += tf.random.normal([8, 4])
            return state

        def learn(state):
            state = examples(state)
            with tf.GradientTape() as tape:
                outputs = tf.matmul(state, weights)[:, 0]
                loss = tf.nn.compute_average_loss(tf.square(outputs), global_batch_size=16)
            optimizer.apply(tape.gradient(loss, [weights]), [weights])

        def apply(summed):
            optimizer.apply([summed / 2], [weights])

        is_summed = name == "sums of gradients"
        step = tf.function(lambda value: strategy.run(apply if is_summed else learn, (value,)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step(tf.ones([4, 1] if is_summed else [8, 4]))
        self.assertEmpty([w for w in caught if "same examples" in str(w.message)])

    def test_gradients_that_are_changed(self):
        loss = _NOT_DIVIDED["mean"]
        self.assertEmpty(train(2, loss, lambda gradients, n: [g / n for g in gradients]))

    def test_gradients_that_the_step_averages(self):
        def average(gradients, n):
            return tf.distribute.get_replica_context().all_reduce("mean", gradients)

        (message,) = train(4, _NOT_DIVIDED["mean"], average)
        self.assertIn("trains at 4 times the rate", message)
        self.assertEmpty(train(4, _RIGHT["divided mean"], average))

    @parameterized.parameters(*_SUMMED)
    @pytest.mark.default_cases(2)
    def test_gradients_that_are_summed_by_the_step(self, name):
        loss, change = _RIGHT["loss of Keras"], _SUMMED[name]
        (message,) = train(4, loss, lambda gradients, n: change(summed(gradients)))
        self.assertRegex(message, r"'(?i:sgd)_?\d*' gets gradients that the step has summed")
        self.assertIn("4 times the rate", message)
        self.assertNotIn("\n", message)
        self.assertEmpty(
            train(4, loss, lambda gradients, n: change([g / n for g in summed(gradients)]))
        )
        self.assertEmpty(
            train(4, loss, lambda gradients, n: [g / n for g in change(summed(gradients))])
        )

    def test_gradients_over_a_sum_of_all_replicas(self):
        def loss(y, p, keras_loss, n):
            return kept(y, p)

        def change(gradients, n):
            (count,) = summed([tf.constant(1.0)])
            return [g / count for g in gradients]

        self.assertEmpty(train(2, loss, change))

    def test_a_loss_of_many_terms(self):
        @tf.function(autograph=False)
        def check(x):
            term = loss_scale.note_scaled(tf.identity(x))
            self.assertTrue(loss_scale.is_scaled(sum([term] * 1000)))
            self.assertFalse(loss_scale.is_scaled(sum([x] * 1000)))

        check(tf.constant(1.0))

    def test_losses_that_fit_gets(self):
        strategy = TernGradStrategy(2, grad_bits=32)
        for loss, is_scalar in (
            ("mse", False),
            (lambda y, p: tf.reduce_mean(tf.square(y - p), axis=-1), False),
            # Keras does not divide a scalar loss.
            (lambda y, p: tf.reduce_mean(tf.square(y - p)), True),
            (lambda y, p: kept(y, p) / tf.reduce_sum(mask(y)), True),
        ):
            with strategy.scope():
                dense = keras.layers.Dense(1, kernel_regularizer="l2")
                model = keras.Sequential([keras.layers.Input((3,)), dense])
                model.compile("sgd", loss)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(numbers(16, 3), numbers(16, 1), batch_size=BATCH, verbose=0)
            messages = [str(w.message) for w in caught if "times the rate" in str(w.message)]
            self.assertLen(messages, int(is_scalar))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
