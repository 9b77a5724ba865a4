"""Variables that a compiled step makes, as `build` of a layer or a generator does."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy

INITIAL_VALUES = {
    "number": lambda w: 3,
    "list": lambda w: [0.5, 2.0],
    "text": lambda w: "text",
    "constant": lambda w: tf.constant([1, 2]),
    "bfloat16": lambda w: tf.cast(w, tf.bfloat16),
    "random": lambda w: tf.random.normal([2]),
    "of a variable": lambda w: 2.0 * w,
    "variable": lambda w: w,
}


def numbers_of(strategy):
    """Gives replica k the scalar k + 1."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
    )


class MadeInStepsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(of=list(INITIAL_VALUES), is_called=[False, True])
    @pytest.mark.default_cases(6)
    def test_all_replicas_have_the_initial_value_of_tensorflow(self, of, is_called):
        def values(strategy):
            tf.random.set_seed(3)
            with strategy.scope():
                weight = tf.Variable([1.0, -2.0])
            made = []

            def replica():
                if not made:
                    value = INITIAL_VALUES[of]
                    value = (lambda: INITIAL_VALUES[of](weight)) if is_called else value(weight)
                    made.append(tf.Variable(value, trainable=False))
                return made[0].read_value()

            step = tf.function(lambda: strategy.run(replica))
            return [strategy.experimental_local_results(step()) for _ in range(2)]

        ours, plain = values(TernGradStrategy(3)), values(tf.distribute.get_strategy())
        for replicas, (expected,) in zip(ours, plain, strict=True):
            self.assertLen(replicas, 3)
            for value in replicas:
                self.assertEqual(value.dtype, expected.dtype)
                self.assertAllEqual(value, expected)

    def test_the_value_is_there_before_the_replicas_write(self):
        strategy, calls, made = TernGradStrategy(4), [], []

        def initial_value():
            return tf.ensure_shape(tf.numpy_function(compute, [], tf.float32), [])

        def compute():
            calls.append(1)
            return np.float32(5.0)

        def replica():
            if not made:
                made.append(tf.Variable(initial_value, trainable=False, dtype=tf.float32))
            before = made[0].read_value()
            made[0].assign_add(1.0)
            return before

        step = tf.function(lambda: strategy.run(replica))
        for expected in (5.0, 6.0, 7.0):
            got = strategy.experimental_local_results(step())
            self.assertAllEqual(got, [expected] * 4)
        # Else replicas would write while others compute initial values.
        self.assertLen(calls, 1)

    @parameterized.parameters("an argument", "a written variable")
    def test_a_value_that_only_the_step_knows_is_refused(self, source):
        strategy = TernGradStrategy(2)
        with strategy.scope():
            weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
        made = []

        def replica(x):
            weight.assign_add(1.0)
            value = x if source == "an argument" else weight
            if not made:
                made.append(tf.Variable(value, trainable=False, name="average"))
            return made[0].read_value()

        step = tf.function(lambda x: strategy.run(replica, args=(x,)))
        with self.assertRaisesRegex(ValueError, "'average' with an initial value that depends on"):
            step(numbers_of(strategy))

    def test_processes_refuse_weights_with_a_value_that_only_the_step_knows(self):
        strategy = TernGradStrategy(1)
        strategy.extended.process_group = object()  # of a cluster, whose broadcasts would not meet
        step = tf.function(lambda x: strategy.extended.call_for_each_replica(tf.Variable, (x,)))
        with self.assertRaisesRegex(ValueError, "processes have their own copies"):
            step(tf.constant(1.0))

    def test_weights_take_a_value_that_only_the_step_knows(self):
        strategy, made = TernGradStrategy(2), []

        def replica(x):
            if not made:
                made.append(tf.Variable(x))
            return made[0].read_value()

        step = tf.function(lambda x: strategy.run(replica, args=(x,)))
        for _ in range(2):
            got = strategy.experimental_local_results(step(numbers_of(strategy)))
            self.assertAllEqual(got, [1.0, 1.0])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
