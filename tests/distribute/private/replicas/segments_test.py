"""Functions use tensors across reductions, and in merge functions, as in stock strategies."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import TernGradStrategy

_NUM_REPLICAS = [1, 2, 4]


def local(strategy, value):
    return [np.asarray(v) for v in strategy.experimental_local_results(value)]


def context():
    return tf.distribute.get_replica_context()


class _SegmentsTest(tf.test.TestCase, parameterized.TestCase):
    def run_in_graph(self, strategy, replica):
        """Runs `replica`; replica k gets the scalar k + 1."""
        x = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
        )
        return tf.function(lambda x: strategy.run(replica, args=(x,)))(x)

    def assert_replicas(self, replica, expected, num_replicas):
        """Compares the replicas' results with `expected` of all replicas' x."""
        strategy = TernGradStrategy(num_replicas, grad_bits=32)
        got = self.run_in_graph(strategy, replica)
        x = np.arange(1.0, num_replicas + 1)
        # A value that is equal on all replicas is one tensor.
        got, expected = (np.broadcast_to(v, x.shape) for v in (local(strategy, got), expected(x)))
        self.assertAllClose(got, expected)


class MergeFunctionsTest(_SegmentsTest):
    """Merge functions run for all replicas, with the first replica's tensors."""

    @parameterized.product(num_replicas=_NUM_REPLICAS, num_updates=[None, 3])
    def test_exponential_moving_averages_of_variables(self, num_replicas, num_updates):
        strategy = TernGradStrategy(num_replicas, grad_bits=32)
        with strategy.scope():
            variables = [
                tf.Variable([2.0, 4.0], aggregation=tf.VariableAggregation.MEAN),
                tf.Variable(3.0, aggregation=tf.VariableAggregation.MEAN),
            ]
        average = tf.train.ExponentialMovingAverage(0.9, num_updates=num_updates)

        def replica(x):
            for variable in variables:
                variable.assign_add(tf.ones_like(variable))
            with tf.control_dependencies([average.apply(variables)]):
                return x + average.average(variables[1]).read_value()

        step = tf.function(lambda: self.run_in_graph(strategy, replica))
        results = [local(strategy, step()) for _ in range(2)]
        decay = 0.9 if num_updates is None else min(0.9, 4 / 13)
        expected = np.array([2.0, 4.0, 3.0])
        for number, result in enumerate(results, 1):
            expected = decay * expected + (1 - decay) * (np.array([2.0, 4.0, 3.0]) + number)
            self.assertAllClose(result, expected[2] + np.arange(1.0, num_replicas + 1))
        self.assertAllClose(average.average(variables[0]), expected[:2])

    @parameterized.parameters(_NUM_REPLICAS)
    def test_tensors_of_the_replica_in_an_update(self, num_replicas):
        strategy = TernGradStrategy(num_replicas, grad_bits=32)
        with strategy.scope():
            variable = tf.Variable(1.0)

        def replica(x):
            double = 2 * x

            def merge(strategy, x):
                total = strategy.extended.reduce_to("SUM", x, variable)
                strategy.extended.update(variable, lambda v, t: v.assign_add(t + double), (total,))

            context().merge_call(merge, args=(x,))

        self.run_in_graph(strategy, replica)
        self.assertAllClose(variable, 1 + num_replicas * (num_replicas + 1) / 2 + 2)

    @parameterized.parameters(_NUM_REPLICAS)
    def test_tensors_of_the_replica_in_a_condition_and_in_a_loop(self, num_replicas):
        def replica(x):
            triple = 3 * x

            def merge(strategy, x):
                total = strategy.reduce("SUM", x, axis=None)
                total = tf.cond(total > 0.0, lambda: total + triple, lambda: triple)

                def add(i, t):
                    return (i + 1, t + triple)

                return tf.while_loop(lambda i, _: i < 2, add, [0, total])[1]

            return context().merge_call(merge, args=(x,))

        self.assert_replicas(replica, lambda x: x.sum() + 9, num_replicas)

    @parameterized.parameters(_NUM_REPLICAS)
    def test_tensors_of_two_segments_and_control_dependencies_on_them(self, num_replicas):
        def replica(x):
            double = 2 * x
            total = context().all_reduce("SUM", double)
            both = double + total

            def merge(strategy, x):
                with tf.control_dependencies([double, both]):
                    return strategy.reduce("SUM", x, axis=None) + double + both

            return context().merge_call(merge, args=(x,))

        self.assert_replicas(replica, lambda x: x.sum() + 4 + 2 * x.sum(), num_replicas)


class LaterSegmentsTest(_SegmentsTest):
    """Later segments use the replica's own tensors of earlier segments."""

    @parameterized.parameters(_NUM_REPLICAS)
    def test_in_functions_conditions_loops_and_maps(self, num_replicas):
        def replica(x):
            double = 2 * x
            total = context().all_reduce("SUM", double)
            result = tf.cond(x > 1.5, lambda: double, lambda: total)

            def add(i, r):
                return (i + 1, r + double)

            result = tf.while_loop(lambda i, _: i < 2, add, [0, result])[1]
            result += tf.reduce_sum(tf.map_fn(lambda k: k * double, tf.constant([1.0, 2.0])))
            return tf.function(lambda: result + total + double)()

        self.assert_replicas(
            replica,
            lambda x: np.where(x > 1.5, 2 * x, 2 * x.sum()) + 12 * x + 2 * x.sum(),
            num_replicas,
        )

    @parameterized.parameters(_NUM_REPLICAS)
    def test_in_gradients_of_reductions(self, num_replicas):
        @tf.custom_gradient
        def scaled(x):
            total, sine = context().all_reduce("SUM", x), tf.sin(x)

            def gradient(upstream):
                return context().all_reduce("SUM", upstream * total * tf.cos(x)) + sine

            return total * sine, gradient

        def replica(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                result = scaled(2 * x)
            return tape.gradient(result, x)

        self.assert_replicas(
            replica,
            lambda x: 2 * ((2 * x).sum() * np.cos(2 * x).sum() + np.sin(2 * x)),
            num_replicas,
        )

    @parameterized.parameters(_NUM_REPLICAS)
    def test_in_arrays_and_ragged_and_sparse_tensors(self, num_replicas):
        def replica(x):
            array = tf.TensorArray(tf.float32, 2).write(0, x)
            ragged = tf.RaggedTensor.from_row_lengths(tf.stack([x, x, 2 * x]), [1, 2])
            sparse = tf.sparse.from_dense(tf.stack([x, 0 * x]))
            total = context().all_reduce("SUM", x)
            array = array.write(1, total).stack()
            return (
                tf.reduce_sum(ragged * total) + tf.sparse.reduce_sum(sparse) + array[0] * array[1]
            )

        self.assert_replicas(replica, lambda x: 5 * x * x.sum() + x, num_replicas)


class ScatteredRowsTest(_SegmentsTest):
    """Rows whose `dense_shape` is a tuple, as users of TensorFlow write it."""

    @parameterized.product(
        num_replicas=_NUM_REPLICAS,
        name=["scatter_add", "scatter_sub", "scatter_mul", "scatter_div"],
    )
    def test_of_the_first_replica(self, num_replicas, name):
        self.assert_scattered(num_replicas, name, [2.0, 0.5])

    @parameterized.product(
        num_replicas=_NUM_REPLICAS, name=["scatter_min", "scatter_max", "scatter_update"]
    )
    def test_scatters_that_bound_or_set_rows(self, num_replicas, name):
        self.assert_scattered(num_replicas, name, [3.0, 2.5])

    def assert_scattered(self, num_replicas, name, rows):
        strategy = TernGradStrategy(num_replicas, grad_bits=32)
        first, none = (
            tf.VariableAggregation.ONLY_FIRST_REPLICA,
            tf.VariableAggregation.NONE,
        )
        with strategy.scope():
            variables = [tf.Variable([1.0, 4.0, 3.0], aggregation=a) for a in (first, none)]

        def replica(x):
            # Replicas must write equal values to a variable without aggregation.
            for variable, factor in zip(variables, (x, x / x), strict=True):
                slices = tf.IndexedSlices(factor * rows, tf.constant([0, 1]), dense_shape=(3,))
                getattr(variable, name)(slices)

        self.run_in_graph(strategy, replica)
        expected = tf.Variable([1.0, 4.0, 3.0])
        getattr(expected, name)(tf.IndexedSlices(tf.constant(rows), tf.constant([0, 1])))
        for variable in variables:
            self.assertAllClose(variable, expected)

    @parameterized.parameters(_NUM_REPLICAS)
    def test_rows_that_are_summed_or_averaged(self, num_replicas):
        strategy = TernGradStrategy(num_replicas, grad_bits=32)
        total, mean = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN
        with strategy.scope():
            variables = [tf.Variable(tf.zeros([3, 1]), aggregation=a) for a in (total, mean)]

        def replica(x):
            rows = tf.reshape(x, [1, 1])
            for variable in variables:
                variable.scatter_add(tf.IndexedSlices(rows, tf.constant([1]), dense_shape=[3, 1]))

        self.run_in_graph(strategy, replica)
        count = num_replicas
        self.assertAllClose(variables[0], [[0.0], [count * (count + 1) / 2], [0.0]])
        self.assertAllClose(variables[1], [[0.0], [(count + 1) / 2], [0.0]])

    def test_returned_by_a_merge_function_and_by_replicas(self):
        strategy = TernGradStrategy(2, grad_bits=32)

        def replica(x):
            rows = tf.IndexedSlices(x * [2.0], tf.constant([1]), dense_shape=(3,))
            summed = context().merge_call(
                lambda strategy, rows: strategy.extended.reduce_to("SUM", rows, "CPU:0"), (rows,)
            )
            return tf.convert_to_tensor(summed), rows

        summed, rows = self.run_in_graph(strategy, replica)
        self.assertAllClose(local(strategy, summed), [[0.0, 6.0, 0.0]] * 2)
        self.assertAllClose(
            [tf.convert_to_tensor(r) for r in strategy.experimental_local_results(rows)],
            [[0.0, 2.0, 0.0], [0.0, 4.0, 0.0]],
        )


class GatheredRanksTest(_SegmentsTest):
    def test_values_of_different_rank_fail_as_in_tensorflow(self):
        strategy = TernGradStrategy(2, grad_bits=32)
        values = strategy.experimental_distribute_values_from_function(
            lambda context: tf.ones([1] * (1 + context.replica_id_in_sync_group))
        )

        def gather(x):
            return context().all_gather(x, axis=0)

        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "Ranks of all input tensors"):
            tf.function(lambda x: strategy.run(gather, args=(x,)))(values)
        with self.assertRaisesRegex(ValueError, "Values can be gathered whose rank"):
            tf.function(lambda x: strategy.gather(x, axis=0))(values)
        with self.assertRaisesRegex(ValueError, "Values can be gathered whose rank"):
            strategy.run(gather, args=(values,))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
