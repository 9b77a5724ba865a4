"""Weights that a step assigns by hand: combined on request, refused if replicas differ."""

import functools
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized
from keras import layers
from packaging import version

from terngrad_tf.distribute import TernGradStrategy
from tests.clients.comparison import ClientTest, numbers

# TensorFlow 2.23 takes only ASCII names.
NAME = "Gewicht_ä" if version.parse(tf.__version__) < version.parse("2.23.dev0") else "weight"
REFUSED = f"A step assigned to the weight '[^']*{NAME}' values that differ between replicas"


class ByHand(keras.Model):
    """Takes steps of gradient descent, writing weights with the function `write`."""

    def __init__(self, write, aggregation="none"):
        super().__init__()
        self.write = write
        self.w = self.add_weight(
            shape=(3, 1), initializer="ones", aggregation=aggregation, name=NAME
        )
        self.built = True

    def call(self, x):
        return tf.matmul(x, tf.convert_to_tensor(self.w))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        self.write(self.w, tape.gradient(loss, self.w.value))
        return {"loss_of_batch": loss}


def reduced(w, gradient):
    w.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce("MEAN", gradient))


def subtracted(w, gradient):
    w.assign_sub(0.1 * gradient)


def assigned(w, gradient):
    w.assign(w - 0.1 * gradient)


def twice(w, gradient):
    """Sharpness-aware minimization: up along the gradient, and back."""
    step = gradient / tf.norm(gradient)
    w.assign_add(step)
    w.assign_sub(step + 0.1 * gradient)


def in_own_loop(model, run, in_function):
    """Runs one epoch of a custom loop."""
    strategy = model.distribute_strategy
    examples = tf.data.Dataset.from_tensor_slices((numbers(8, 3), numbers(8, 1, seed=1)))

    def step(batch):
        return strategy.run(run or model.train_step, args=(batch,))

    step = tf.function(step) if in_function else step
    for batch in strategy.experimental_distribute_dataset(examples.batch(8)):
        step(batch)


def train(strategy, write, aggregation="none", num_examples=8, run_eagerly=False):
    with strategy.scope():
        model = ByHand(write, aggregation)
        model.compile("sgd", run_eagerly=run_eagerly)
    x, y = numbers(num_examples, 3), numbers(num_examples, 1, seed=1)
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    return model.w.numpy()


class AssignedWeightsTest(ClientTest, parameterized.TestCase):
    num_replicas = (4,)

    @parameterized.parameters((4, 8, False), (2, 9, False), (4, 11, True))
    @pytest.mark.slow
    def test_reduced_gradients_are_those_of_the_batch(self, count, num_examples, run_eagerly):
        self.num_replicas = (count,)

        def by_hand(strategy):
            return train(strategy, reduced, "none", num_examples, run_eagerly)

        self.assert_same_without_strategy([by_hand])

    @parameterized.parameters((2, subtracted), (4, assigned))
    @pytest.mark.default_cases(1)
    def test_replicas_write_their_mean_on_request(self, count, write):
        self.num_replicas = (count,)

        def by_hand(strategy):
            return train(strategy, write, "mean")

        self.assert_same_without_strategy([by_hand])

    @parameterized.product(write=[subtracted, assigned, twice], run_eagerly=[False, True])
    @pytest.mark.default_cases(3)
    def test_different_values_are_refused(self, write, run_eagerly):
        strategy = TernGradStrategy(4 if run_eagerly else 2, grad_bits=32)
        with self.assertRaisesRegex(ValueError, f"^{REFUSED}[^\n]*$"):
            train(strategy, write, run_eagerly=run_eagerly)
        # A single replica may write anything.
        by_itself = train(TernGradStrategy(1, grad_bits=32), write)
        self.assertAllClose(by_itself, train(tf.distribute.get_strategy(), write))

    @parameterized.product(
        write=[subtracted, twice], place=["step", "function in run", "loop", "eager"]
    )
    @pytest.mark.default_cases(4)
    def test_custom_loops_get_the_same_line(self, write, place):
        strategy = TernGradStrategy(2, grad_bits=32)
        with strategy.scope():
            model = ByHand(write)
        run = tf.function(model.train_step) if place == "function in run" else None
        loop = functools.partial(in_own_loop, model, run, place == "step")
        loop = tf.function(loop) if place == "loop" else loop
        with self.assertRaisesRegex(ValueError, f"^{REFUSED}[^\n]*$"):
            loop()
        self.assertAllEqual(model.w.numpy(), np.ones([3, 1]))

    def test_errors_of_user_checks_pass_unchanged(self):
        strategy = TernGradStrategy(2, grad_bits=32)

        @tf.function
        def step():
            strategy.run(lambda: tf.debugging.assert_equal(tf.zeros([]) + 1.0, 2.0, "own check"))

        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "own check"):
            step()

    def test_no_weight_changes_before_the_refusal(self):
        with TernGradStrategy(4, grad_bits=32).scope():
            model = ByHand(subtracted)
            model.compile("sgd")
        with self.assertRaisesRegex(ValueError, REFUSED):
            model.fit(numbers(8, 3), numbers(8, 1, seed=1), batch_size=8, verbose=0)
        self.assertAllEqual(model.w.numpy(), np.ones([3, 1]))

    @pytest.mark.slow
    def test_values_computed_from_shared_weights_may_be_assigned(self):
        def target_network(strategy):
            with strategy.scope():
                online, target = (
                    keras.Sequential([layers.Input((3,)), layers.Dense(1)]) for _ in range(2)
                )
                optimizer = keras.optimizers.SGD(0.1)
                optimizer.build(online.trainable_variables)

            @tf.function
            def step(batch):
                def replica(x):
                    with tf.GradientTape() as tape:
                        loss = tf.nn.compute_average_loss(online(x)[:, 0] - target(x)[:, 0])
                    variables = online.trainable_variables
                    optimizer.apply(tape.gradient(loss, variables), variables)
                    for old, new in zip(target.variables, online.variables, strict=True):
                        old.assign(0.9 * old + 0.1 * new)

                strategy.run(replica, args=(batch,))

            batches = tf.data.Dataset.from_tensor_slices(numbers(16, 3)).batch(8)
            for batch in strategy.experimental_distribute_dataset(batches):
                step(batch)
            return [v.numpy() for v in target.variables + online.variables]

        self.assert_same_without_strategy([target_network])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
