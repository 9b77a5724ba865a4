"""Random numbers of a step: different for each example, the same in each run."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy

EXAMPLES = 8


def nested(x):
    """Draws in a function that a branch calls."""
    draw = tf.function(lambda: tf.random.uniform(tf.shape(x)))
    return tf.cond(tf.reduce_sum(x) > 0, draw, lambda: x)


def sampled(x):
    """Samples classes once for the whole batch."""
    true_classes = tf.zeros([1, 1], tf.int64)
    sampler = tf.random.log_uniform_candidate_sampler(true_classes, 1, 6, False, 10**9)
    return tf.repeat(sampler.sampled_candidates[tf.newaxis], tf.shape(x)[0], 0)


def of_two_segments(x):
    first = tf.random.normal(tf.shape(x))
    total = tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(x))
    return first - tf.random.normal(tf.shape(x)) + 0.0 * total


def in_a_gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x * tf.random.gamma(tf.shape(x), x))
    return tape.gradient(y, x)


def brightness(x):
    """Changes the brightness of all images of a replica alike."""
    return tf.image.random_brightness(x, 0.5)


# Functions that draw a row for each example.
OF_EXAMPLES = {
    "normal": lambda x: tf.random.normal(tf.shape(x)),
    "uniform integers": lambda x: tf.random.uniform(tf.shape(x), 0, 1 << 30, tf.int32),
    "truncated normal, own seed": lambda x: tf.random.truncated_normal(tf.shape(x), seed=3),
    "poisson": lambda x: tf.random.poisson([], 1e6 * x),
    "categorical": lambda x: tf.random.categorical(tf.zeros([tf.shape(x)[0], 999]), 4),
    "dropout": lambda x: tf.nn.dropout(x, 0.5),
    "shuffled": lambda x: tf.map_fn(tf.random.shuffle, x * tf.range(32.0), parallel_iterations=1),
    "nested": nested,
    "two segments": of_two_segments,
    "gradient": in_a_gradient,
    "keras.random": lambda x: keras.random.normal(tf.shape(x)),
}
# Functions that draw once for all examples of a replica.
OF_REPLICAS = {
    "scalar": lambda x: x * tf.random.uniform([]),
    "brightness": brightness,
    "candidates": sampled,
}
LAYERS = {
    "noise": lambda: keras.layers.GaussianNoise(1.0),
    "dropout": lambda: keras.layers.GaussianDropout(0.5),
    "brightness": lambda: keras.layers.RandomBrightness(0.5, (0.0, 1.0)),
}


def drawn(num_replicas, function, steps=2, compiled=True):
    """Returns the draws `[steps, EXAMPLES, ...]` of some steps with a fixed global seed."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    strategy = TernGradStrategy(num_replicas) if num_replicas else tf.distribute.get_strategy()
    dataset = tf.data.Dataset.from_tensors(tf.ones([EXAMPLES, 32])).repeat(steps)
    step = lambda batch: strategy.run(function, args=(batch,))  # noqa: E731
    step = tf.function(step) if compiled else step
    return np.stack(
        [
            np.concatenate(strategy.experimental_local_results(step(batch)))
            for batch in strategy.experimental_distribute_dataset(dataset)
        ]
    )


class RandomOpsTest(tf.test.TestCase, parameterized.TestCase):
    def assert_different(self, numbers, rows):
        for of_step in numbers:
            self.assertLen(np.unique(of_step.reshape(EXAMPLES, -1), axis=0), rows)
        self.assertNotAllEqual(numbers[0], numbers[1])

    @parameterized.parameters(*OF_EXAMPLES)
    @pytest.mark.default_cases(6)
    def test_each_example_gets_its_own_numbers_the_same_in_each_run(self, name):
        self.check(name, 4)

    @parameterized.parameters(*OF_EXAMPLES)
    @pytest.mark.long
    def test_each_example_on_two_replicas_gets_its_own_numbers(self, name):
        self.check(name, 2)

    def check(self, name, num_replicas):
        numbers = drawn(num_replicas, OF_EXAMPLES[name])
        self.assert_different(numbers, EXAMPLES)
        self.assertAllEqual(drawn(num_replicas, OF_EXAMPLES[name]), numbers)

    @parameterized.parameters(*OF_REPLICAS)
    @pytest.mark.default_cases(1)
    def test_each_replica_makes_its_own_draws_for_a_batch(self, name):
        numbers = drawn(4, OF_REPLICAS[name])
        self.assert_different(numbers, 4)
        self.assertAllEqual(drawn(4, OF_REPLICAS[name]), numbers)

    @parameterized.parameters("normal", "nested", "two segments", "dropout")
    @pytest.mark.default_cases(2)
    def test_a_single_replica_draws_as_without_a_strategy(self, name):
        alone = drawn(0, OF_EXAMPLES[name])
        self.assertAllEqual(drawn(1, OF_EXAMPLES[name]), alone)
        # Generators of four replicas advance by fewer numbers a step.
        self.assertAllEqual(drawn(4, OF_EXAMPLES[name])[0, :2], alone[0, :2])

    def test_segments_of_a_step_draw_different_numbers(self):
        self.assertGreater(np.abs(drawn(4, of_two_segments)).max(), 0.1)

    def test_steps_that_run_eagerly(self):
        for name in ("normal", "keras.random"):
            numbers = drawn(4, OF_EXAMPLES[name], compiled=False)
            self.assert_different(numbers, EXAMPLES)
            self.assertAllEqual(drawn(4, OF_EXAMPLES[name], compiled=False), numbers)

    def test_without_a_seed_replicas_draw_different_numbers(self):
        def unseeded(x):
            return tf.raw_ops.RandomUniform(shape=tf.shape(x), dtype=tf.float32)

        self.assert_different(drawn(4, unseeded), EXAMPLES)

    def test_stateless_operations_follow_their_seed(self):
        def stateless(x):
            return tf.random.stateless_normal(tf.shape(x), [1, 2])

        numbers = drawn(4, stateless)
        self.assertLen(np.unique(numbers.reshape(-1, 32), axis=0), 2)

    def test_generators_of_the_scope(self):
        def run():
            strategy = TernGradStrategy(4)
            with strategy.scope():
                generator = tf.random.Generator.from_seed(5)
            step = tf.function(lambda: strategy.run(lambda: generator.normal([2, 32])))
            return np.stack(
                [np.concatenate(strategy.experimental_local_results(step())) for _ in range(2)]
            )

        numbers = run()
        self.assert_different(numbers, EXAMPLES)
        self.assertAllEqual(run(), numbers)

    @parameterized.parameters(*LAYERS)
    @pytest.mark.default_cases(1)
    def test_layers_of_keras(self, name):
        def run():
            keras.utils.clear_session()
            keras.utils.set_random_seed(7)
            strategy = TernGradStrategy(4)
            with strategy.scope():
                layer = LAYERS[name]()
            x = 0.5 * tf.ones([EXAMPLES, 4, 4, 3])
            (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(x))
            step = tf.function(lambda b: strategy.run(lambda x: layer(x, training=True), args=(b,)))
            return np.stack(
                [np.concatenate(strategy.experimental_local_results(step(batch))) for _ in "ab"]
            )

        numbers = run()
        self.assert_different(numbers, EXAMPLES)
        self.assertAllEqual(run(), numbers)

    def test_a_model_with_random_layers_trains_alike_in_each_run(self):
        class Sampling(keras.layers.Layer):
            def call(self, x, training=False):
                return x + tf.random.normal(tf.shape(x)) if training else x

        def losses():
            keras.utils.clear_session()
            keras.utils.set_random_seed(7)
            with TernGradStrategy(4, grad_bits=32).scope():
                model = keras.Sequential([keras.Input([3]), Sampling(), keras.layers.Dense(1)])
                model.compile("sgd", "mse")
            return model.fit(np.ones([16, 3]), np.ones([16, 1]), 8, epochs=3, verbose=0).history

        first = losses()
        self.assertAllClose(losses()["loss"], first["loss"], rtol=1e-6)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
