"""Tests of many replicas on one device: one trace, one copy of the weights."""

import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from tests.distribute.samples import build, data

NUM_REPLICAS = 16


def local(strategy, value):
    return [np.asarray(v) for v in strategy.experimental_local_results(value)]


class ReplicasTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.strategy = TernGradStrategy(NUM_REPLICAS)

    def replica_values(self):
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(float(context.replica_id_in_sync_group) + 1)
        )

    def run_in_graph(self, replica, *args):
        return tf.function(lambda *args: self.strategy.run(replica, args=args))(*args)

    def test_the_function_is_traced_once_and_runs_with_every_replicas_values(self):
        calls = []

        def replica(x):
            calls.append(x)
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return {"number": replica, "square": x * x, "same": 7, "none": None}

        result = self.run_in_graph(replica, self.replica_values())
        self.assertLen(calls, 1)
        self.assertAllEqual(local(self.strategy, result["number"]), range(NUM_REPLICAS))
        self.assertAllEqual(
            local(self.strategy, result["square"]), np.arange(1.0, NUM_REPLICAS + 1) ** 2
        )
        self.assertEqual(int(result["same"]), 7)
        self.assertIsNone(result["none"])

    def test_sums_do_not_depend_on_what_still_reads_the_parts(self):
        """Otherwise the last bits of weights would depend on the machine's load."""

        def replica(x):
            return tf.sin(x * tf.range(1000.0))

        def summed(x, reads):
            parts = self.strategy.run(replica, args=(x,))
            total = self.strategy.reduce("SUM", parts, axis=None)
            with tf.control_dependencies([total]):
                first = self.strategy.experimental_local_results(parts)[:reads]
                return total, [tf.square(part) for part in first]

        alone, _ = tf.function(lambda x: summed(x, 0))(self.replica_values())
        for reads in (2, 15):
            total, _ = tf.function(lambda x, reads=reads: summed(x, reads))(self.replica_values())
            self.assertAllEqual(total, alone)

    def test_a_step_that_gets_no_batch_changes_nothing(self):
        """Else an error of the pipeline could count as a step."""
        with self.strategy.scope():
            counter = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        batches = tf.data.Dataset.range(32).batch(16).repeat(2)
        slow = tf.data.Dataset.from_generator(
            lambda: iter(batches), output_signature=tf.TensorSpec([None], tf.int64)
        )
        iterator = iter(self.strategy.experimental_distribute_dataset(slow))

        @tf.function
        def step():
            self.strategy.run(lambda x: counter.assign_add(1), args=(next(iterator),))

        with self.assertRaises((StopIteration, tf.errors.OutOfRangeError)):
            for _ in range(9):
                step()
        self.assertEqual(counter.numpy(), 4)

    def test_a_run_waits_for_what_its_call_waits_for(self):
        counter = tf.Variable(0)

        @tf.function
        def step(x):
            with tf.control_dependencies([tf.debugging.check_numerics(x, "x")]):
                self.strategy.run(lambda: counter.assign_add(1))

        step(tf.constant(1.0))
        with self.assertRaises(tf.errors.InvalidArgumentError):
            step(tf.constant(np.nan))
        self.assertEqual(counter.numpy(), NUM_REPLICAS)

    def test_a_model_that_is_not_compiled_predicts(self):
        with self.strategy.scope():
            model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
        x = np.arange(15, dtype=np.float32).reshape(5, 3)
        self.assertAllClose(model.predict(x, verbose=0), model(x))

    def test_tensors_live_on_across_reductions_in_graphs_and_eagerly(self):
        def replica(x):
            double = 2 * x
            context = tf.distribute.get_replica_context()
            total = context.all_reduce("SUM", x)
            mean = context.all_reduce("MEAN", [double, x * x])
            return double + total + mean[0] - mean[1]

        x = np.arange(1.0, NUM_REPLICAS + 1)
        expected = 2 * x + x.sum() + (2 * x).mean() - (x * x).mean()
        values = self.replica_values()
        self.assertAllClose(local(self.strategy, self.run_in_graph(replica, values)), expected)
        eager = self.strategy.run(replica, args=(values,))
        self.assertAllClose(local(self.strategy, eager), expected)

    def test_the_first_replicas_value_is_the_same_for_all_replicas(self):
        first = self.strategy.experimental_local_results

        def step(values):
            of_first = first(values)[0]

            def replica(x):
                context = tf.distribute.get_replica_context()
                merged = context.merge_call(lambda _, x: first(x)[0], args=(x,))
                of_both = context.merge_call(lambda _, x: (x, first(x)[0]), args=(x,))
                return x - of_first, merged, of_both

            return self.strategy.run(replica, args=(values,))

        difference, merged, (own, of_both) = tf.function(step)(self.replica_values())
        self.assertAllEqual(local(self.strategy, difference), range(NUM_REPLICAS))
        self.assertAllEqual(local(self.strategy, merged), [1.0])
        self.assertAllEqual(local(self.strategy, own), range(1, NUM_REPLICAS + 1))
        self.assertAllEqual(local(self.strategy, of_both), [1.0])

    def test_gradients_flow_through_a_reduction(self):
        def replica(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.distribute.get_replica_context().all_reduce("SUM", x * x)
                loss = total * x
            return tape.gradient(loss, x)

        x = np.arange(1.0, NUM_REPLICAS + 1)
        # The loss of replica k is x_k * sum_j x_j^2; differentiates all losses by x_k.
        expected = (x * x).sum() + 2 * x * x.sum()
        self.assertAllClose(
            local(self.strategy, self.run_in_graph(replica, self.replica_values())), expected
        )

    def test_a_loop_and_a_condition_inside_differ_between_replicas(self):
        def replica(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                power = tf.while_loop(
                    lambda i, _: i < tf.cast(x, tf.int32),
                    lambda i, p: (i + 1, p * x),
                    [0, tf.constant(1.0)],
                )[1]
                power = tf.cond(x > 3.0, lambda: tf.constant(0.0) * x, lambda: power)
            tf.distribute.get_replica_context().all_reduce("SUM", x)
            return tape.gradient(power, x)

        expected = [1.0, 4.0, 27.0] + [0.0] * (NUM_REPLICAS - 3)
        self.assertAllClose(
            local(self.strategy, self.run_in_graph(replica, self.replica_values())), expected
        )

    def test_a_reduction_inside_a_condition_is_one_clear_error(self):
        def replica(x):
            context = tf.distribute.get_replica_context()
            return tf.cond(x > 3.0, lambda: context.all_reduce("SUM", x), lambda: x)

        with self.assertRaisesRegex(RuntimeError, "must not be called inside a nested"):
            self.run_in_graph(replica, self.replica_values())

    def test_weights_and_optimizer_have_one_copy_and_metrics_one_a_replica(self):
        model = build(self.strategy)
        model.fit(*data(), batch_size=64, verbose=0)
        optimizer = model.optimizer.variables
        for variable in model.trainable_variables + optimizer:
            self.assertLen({id(v) for v in variable.value.values}, 1, variable.path)
        with self.strategy.scope():
            metric = keras.metrics.Sum()
        self.run_in_graph(lambda x: metric.update_state(x), self.replica_values())
        self.assertLen({id(v) for v in metric.total.value.values}, NUM_REPLICAS)
        self.assertEqual(float(metric.result()), sum(range(NUM_REPLICAS + 1)))

    def test_a_shared_variable_that_all_replicas_write_is_written_once(self):
        with self.strategy.scope():
            variable = tf.Variable(0.0)

        def replica(x):
            variable.assign_add(x)
            return variable.read_value()

        ones = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(1.0)
        )
        for replica_run in (self.run_in_graph, lambda f, x: self.strategy.run(f, args=(x,))):
            variable.assign(0.0)
            result = replica_run(replica, ones)
            self.assertAllEqual(local(self.strategy, result), [1.0] * NUM_REPLICAS)
            with self.assertRaisesRegex(ValueError, "that differ between"):
                replica_run(replica, self.replica_values())

    def test_a_run_that_begins_during_one_of_another_thread_is_a_whole_run(self):
        with self.strategy.scope():
            statistic = tf.Variable(0.0, trainable=False)
        threads, values = [], self.replica_values()
        write = tf.function(
            lambda x: self.strategy.run(
                lambda x: statistic.assign(tf.reduce_mean(x[tf.newaxis])), args=(x,)
            )
        )

        def replica(x):
            threads.append(threading.Thread(target=write, args=(values,)))
            threads[0].start()
            # It waits for the end of this run.
            threads[0].join(1)
            return x

        self.run_in_graph(replica, values)
        threads[0].join()
        write(values)
        mean = (NUM_REPLICAS + 1) / 2
        self.assertEqual([v.numpy() for v in statistic.values], [mean] * NUM_REPLICAS)

    def test_a_step_within_an_eager_replica_is_refused(self):
        with self.strategy.scope():
            model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        x = tf.ones([NUM_REPLICAS, 1])
        with self.assertRaisesRegex(RuntimeError, "requires being in cross-replica context"):
            self.strategy.run(lambda: model.train_on_batch(x, x))

    def test_a_thread_reduces_while_another_one_makes_a_variable(self):
        totals = []

        def reduce():
            totals.append(self.strategy.reduce("SUM", self.replica_values(), axis=None))

        def initial_value():
            thread = threading.Thread(target=reduce)
            thread.start()
            thread.join()
            return 0.0

        with self.strategy.scope():
            tf.Variable(initial_value, trainable=False)
        self.assertAllEqual(totals[0], sum(range(NUM_REPLICAS + 1)))

    @pytest.mark.slow
    def test_constraints_of_weights_hold(self):
        strategy = TernGradStrategy(4)
        with strategy.scope():
            model = keras.Sequential(
                [keras.layers.Input((3,)), keras.layers.Dense(2, kernel_constraint="non_neg")]
            )
            model.compile(keras.optimizers.Adam(0.5), "mse")
        x = np.random.default_rng(0).random((32, 3))
        model.fit(x, -np.ones((32, 2)), batch_size=8, verbose=0)
        self.assertAllEqual(model.trainable_variables[0].numpy(), np.zeros([3, 2]))

    def test_batches_are_split_as_evenly_as_can_be(self):
        strategy = TernGradStrategy(4)
        dataset = tf.data.Dataset.range(13).batch(10)
        seen = []
        for batch in strategy.experimental_distribute_dataset(dataset):
            rows = tf.function(lambda b, s=strategy: s.run(lambda x: x, args=(b,)))(batch)
            seen.append([r.tolist() for r in local(strategy, rows)])
        self.assertEqual(seen, [[[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]], [[10], [11], [12], []]])

    def test_ragged_and_sparse_batches_are_split(self):
        strategy = TernGradStrategy(2)
        ragged = tf.ragged.constant([[1], [2, 3], [], [4, 5, 6], [7]])
        dataset = tf.data.Dataset.from_tensors((ragged, ragged.to_sparse()))

        def replica(ragged, sparse):
            return ragged.to_tensor(shape=[None, 3]), tf.sparse.to_dense(sparse)

        (batch,) = strategy.experimental_distribute_dataset(dataset)
        results = tf.function(lambda *b: strategy.run(replica, args=b))(*batch)
        for result in results:
            parts = local(strategy, result)
            self.assertEqual([len(part) for part in parts], [3, 2])
            np.testing.assert_array_equal(np.concatenate(parts), ragged.to_tensor())

    def test_a_dataset_function_gives_each_replica_its_own_batches(self):
        strategy = TernGradStrategy(3)
        batches = strategy.distribute_datasets_from_function(
            lambda context: tf.data.Dataset.range(12).batch(2)
        )
        first = local(strategy, next(iter(batches)))
        self.assertAllEqual(first, [[0, 1], [2, 3], [4, 5]])

    def test_values_that_cannot_be_gathered_are_one_clear_error(self):
        strategy = TernGradStrategy(2)
        for shape_of in (lambda i: [], lambda i: [1] * (i + 1), lambda i: [1, i + 1]):
            per_replica = strategy.experimental_distribute_values_from_function(
                lambda context, f=shape_of: tf.ones(f(context.replica_id_in_sync_group))
            )
            gather = lambda v=per_replica: strategy.gather(v, axis=0)  # noqa: E731
            for call in (gather, tf.function(gather)):
                with self.assertRaisesRegex(ValueError, "gathered whose rank is 1 or more"):
                    call()
        self.assertAllEqual(strategy.gather(per_replica, axis=1), [[1, 1, 1]])
        self.assertAllEqual(strategy.gather(per_replica, axis=-1), [[1, 1, 1]])

    @pytest.mark.long
    def test_sixty_four_replicas_train(self):
        model = build(TernGradStrategy(64), dropout=0.2)
        x, y = data(256)
        history = model.fit(x, y, batch_size=128, epochs=8, verbose=0).history["loss"]
        self.assertLess(history[-1], history[0])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
