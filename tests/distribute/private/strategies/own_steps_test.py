"""Functions that users give to `run` behave as in TensorFlow's own strategies."""

import sys
import traceback
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.distribute import Quantization, TernaryAllReduce, TernGradStrategy
from terngrad_tf.distribute.exchange import buckets
from terngrad_tf.subspace import update_batch_norm


def strategies(count=2):
    """A stock strategy, one with our op, and ours, with `count` replicas each."""
    devices = [f"CPU:{i}" for i in range(count)]
    return {
        "stock": tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice()),
        "op": tf.distribute.MirroredStrategy(devices, TernaryAllReduce(grad_bits=32)),
        "ours": TernGradStrategy(count, grad_bits=32),
    }


def local(strategy, value):
    return [np.asarray(v).tolist() for v in strategy.experimental_local_results(value)]


class OwnStepsTest(tf.test.TestCase, parameterized.TestCase):
    def assert_alike(self, function, count=2):
        """Checks that a function returns the same under all three, in graphs and eagerly."""
        results = {}
        for name, strategy in strategies(count).items():
            results[name] = function(strategy, lambda f: tf.function(f, autograph=False))
            results[f"{name}, eagerly"] = function(strategy, lambda f: f)
        for name, result in results.items():
            self.assertEqual(result, results["stock"], name)
        return results["stock"]

    def test_autograph_converts_the_users_code_and_not_the_reduction(self):
        """Converting all that a reduction calls takes longer than the rest of a first step."""
        files = []
        reduce_bucket = buckets.reduce_bucket

        def seen(bucket, wire):
            files.append([frame.filename for frame in traceback.extract_stack()])
            return reduce_bucket(bucket, wire)

        strategy = TernGradStrategy(2, quantization=Quantization(rotate=False))
        with strategy.scope():
            variable = keras.Variable(tf.zeros([300]))
            optimizer = keras.optimizers.SGD(1.0)
            optimizer.build([variable])

        @tf.function
        def step(x):
            def replica():
                if x > 1.0:
                    gradient = tf.ones([300])
                else:
                    gradient = -tf.ones([300])
                optimizer.apply([gradient], [variable])

            strategy.run(replica)

        with mock.patch.object(buckets, "reduce_bucket", seen):
            step(tf.constant(2.0))
        self.assertAllEqual(variable.numpy(), -2.0 * np.ones([300]))
        (stack,) = files
        last = max(i for i, name in enumerate(stack) if "__autograph_generated" in name)
        self.assertIn("keras_optimizers.py", " ".join(stack[last:]))

    @parameterized.parameters("train_step", "test_step", "one_step_on_data", "predict_step")
    @pytest.mark.default_cases(1)
    def test_a_function_may_have_a_name_of_keras(self, name):
        """The tutorial's names, with keywords and a batch with fewer rows than replicas."""

        def sum_of_rows(strategy, compiled):
            def step(x, *, factor):
                return factor * tf.reduce_sum(tf.cast(x, tf.float32) + 0.5)

            step.__name__ = name
            dataset = tf.data.Dataset.from_tensors(tf.constant([[30]]))
            (batch,) = strategy.experimental_distribute_dataset(dataset)
            total = compiled(
                lambda b: strategy.reduce(
                    "SUM", strategy.run(step, args=(b,), kwargs={"factor": 1.0}), axis=None
                )
            )(batch)
            return float(total)

        self.assertEqual(self.assert_alike(sum_of_rows, 4), 30.5)

    def test_a_compiled_function_may_have_a_name_of_keras(self):
        def sum_over_replicas(strategy, compiled):
            del compiled

            @tf.function
            def train_step(x):
                total = tf.distribute.get_replica_context().all_reduce("SUM", x)
                return total * x

            values = strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
            )
            return local(strategy, strategy.run(train_step, args=(values,)))

        self.assertEqual(self.assert_alike(sum_over_replicas), [3.0, 6.0])

    def test_a_train_step_that_keras_runs_may_be_compiled(self):
        class Model(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = keras.layers.Dense(1, kernel_initializer="ones")

            def call(self, x):
                return self.dense(x)

            @tf.function
            def train_step(self, data):
                return super().train_step(data)

        weights = []
        x, y = np.ones((10, 2), np.float32), np.zeros((10, 1), np.float32)
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(4, grad_bits=32)):
            with strategy.scope():
                model = Model()
                model.compile("sgd", "mse")
            model.fit(x, y, batch_size=10, verbose=0)
            weights.append(model.get_weights())
        for plain, ours in zip(*weights, strict=True):
            np.testing.assert_allclose(ours, plain, rtol=1e-5)

    @parameterized.named_parameters(
        ("integers", lambda i: i + 4),
        ("floats", lambda i: 0.5 * i),
        ("booleans", lambda i: i > 0),
        ("arrays", lambda i: np.array([i, 2 * i])),
        ("array scalars", lambda i: np.int64(i)),
        ("arrays of different length", lambda i: np.arange(i + 1)),
        ("text", lambda i: "ab"[i]),
        ("equal text", lambda i: "ab"),
        ("tuples", lambda i: (i, tf.constant(i))),
        ("functions", lambda i: [abs, len][i]),
        ("nothing for one", lambda i: [None, 3][i]),
    )
    def test_values_of_replicas_need_not_be_tensors(self, of_replica):
        def seen(strategy, compiled):
            values = strategy.experimental_distribute_values_from_function(
                lambda context: of_replica(context.replica_id_in_sync_group)
            )

            def replica(value):
                if value is None or callable(value):
                    return tf.constant(str(value is None or value.__name__))
                return tf.nest.map_structure(
                    lambda v: (
                        tf.convert_to_tensor(v) * 1
                        if not isinstance(v, str)
                        and getattr(v, "dtype", None) != tf.bool
                        and not isinstance(v, bool)
                        else tf.convert_to_tensor(v)
                    ),
                    value,
                )

            result = compiled(lambda: strategy.run(replica, args=(values,)))()
            return tf.nest.map_structure(lambda v: local(strategy, v), result)

        self.assert_alike(seen)

    def test_a_merge_function_may_return_values_that_are_no_tensors(self):
        def seen(strategy, compiled):
            def replica():
                def merge(_):
                    return strategy.experimental_distribute_values_from_function(
                        lambda context: np.float32(6 - 2 * context.replica_id_in_sync_group)
                    )

                value = tf.distribute.get_replica_context().merge_call(merge)
                return tf.convert_to_tensor(value) * 1.0

            return local(strategy, compiled(lambda: strategy.run(replica))())

        self.assertEqual(self.assert_alike(seen), [6.0, 4.0])

    def test_a_pipeline_for_each_replica(self):
        options = tf.distribute.InputOptions(
            experimental_fetch_to_device=False,
            experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        )

        def seen(strategy, compiled):
            contexts = []

            def dataset(context):
                contexts.append((context.input_pipeline_id, context.num_input_pipelines))
                start = 10 * context.input_pipeline_id
                return tf.data.Dataset.range(start, start + 2)

            distributed = strategy.distribute_datasets_from_function(dataset, options)
            sums = [
                local(strategy, compiled(lambda b: strategy.run(lambda x: x + 1, args=(b,)))(batch))
                for batch in distributed
            ]
            with self.assertRaisesRegex(NotImplementedError, "PER_REPLICA"):
                strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(2), options)
            return contexts, sums

        expected = [(0, 2), (1, 2)], [[1, 11], [2, 12]]
        self.assertEqual(self.assert_alike(seen), expected)

    def test_other_pipelines_are_unchanged_after_one_for_each_replica(self):
        strategy = TernGradStrategy(2)
        options = tf.distribute.InputOptions(
            experimental_fetch_to_device=False,
            experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        )
        strategy.distribute_datasets_from_function(lambda _: tf.data.Dataset.range(2), options)
        (batch,) = strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(4))
        self.assertEqual(local(strategy, batch), [[0, 1], [2, 3]])

    def test_a_gradient_made_outside_counts_once(self):
        def stepped(strategy, compiled):
            with strategy.scope():
                variable = keras.Variable([1.0, 1.0])
                rows = keras.Variable(tf.ones([3, 1]))
                optimizer = keras.optimizers.SGD(1.0)
                optimizer.build([variable, rows])

            dense = tf.constant([0.5, -0.5])
            sparse = tf.IndexedSlices(tf.constant([[0.25]]), tf.constant([1]), tf.constant([3, 1]))

            def step():
                strategy.run(lambda: optimizer.apply([dense, sparse], [variable, rows]))

            compiled(step)()
            return variable.numpy().tolist(), rows.numpy().tolist()

        self.assertEqual(self.assert_alike(stepped), ([0.5, 1.5], [[1.0], [0.75], [1.0]]))

    def test_a_tensor_made_outside_is_reduced_to_itself(self):
        def reduced(strategy, compiled):
            outside = tf.constant([1.0, 2.0])

            def replica():
                context = tf.distribute.get_replica_context()
                own = tf.cast(context.replica_id_in_sync_group, tf.float32)
                return [context.all_reduce(op, [outside, own]) for op in ("SUM", "MEAN")]

            results = compiled(lambda: strategy.run(replica))()
            return tf.nest.map_structure(lambda v: local(strategy, v)[0], results)

        expected = [[[1.0, 2.0], 1.0], [[1.0, 2.0], 0.5]]
        self.assertEqual(self.assert_alike(reduced), expected)

    def test_an_update_takes_reduced_values_and_equal_ones(self):
        def updated(strategy, compiled):
            with strategy.scope():
                variable = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)

            def merge(_, gradient, rate):
                total = strategy.extended.reduce_to("SUM", gradient, variable)
                strategy.extended.update(
                    variable, lambda v, g, r: v.assign_sub(r * g), args=(total, rate)
                )

            def replica():
                context = tf.distribute.get_replica_context()
                gradient = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
                context.merge_call(merge, args=(gradient, 0.0 * gradient + 0.5))

            compiled(lambda: strategy.run(replica))()
            return float(variable.numpy())

        self.assertEqual(self.assert_alike(updated), -1.5)

    @parameterized.parameters(True, False)
    def test_an_update_by_values_that_differ_between_replicas_is_an_error(self, in_graph):
        strategy = TernGradStrategy(2)
        with strategy.scope():
            variable = tf.Variable(0.0)

        def update(value):
            def merge(_, value):
                strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(value,))

            tf.distribute.get_replica_context().merge_call(merge, args=(value,))

        def update_non_slot(value):
            def merge(_, value):
                devices = strategy.extended.non_slot_devices([variable])
                strategy.extended.update_non_slot(devices, lambda x: x + 1.0, args=(value,))

            tf.distribute.get_replica_context().merge_call(merge, args=(value,))

        values = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(1.0 + context.replica_id_in_sync_group)
        )
        for function in (update, update_non_slot):
            run = lambda f=function: strategy.run(f, args=(values,))  # noqa: E731
            with self.assertRaisesRegex(ValueError, "differ between replicas"):
                tf.function(run, autograph=False)() if in_graph else run()
        self.assertEqual(float(variable.numpy()), 0.0)

    def test_batch_norm_is_estimated_on_batches_that_do_not_divide_evenly(self):
        means = []
        x = np.random.default_rng(0).normal(3.0, 2.0, (7, 2)).astype(np.float32)
        for strategy in (tf.distribute.get_strategy(), TernGradStrategy(4)):
            with strategy.scope():
                layer = keras.layers.BatchNormalization()
                model = keras.Sequential([keras.layers.Input((2,)), layer])
                model.compile("sgd", "mse")
            update_batch_norm(model, tf.data.Dataset.from_tensor_slices((x, x)).batch(5))
            means.append(layer.moving_mean.numpy())
        np.testing.assert_allclose(means[0], x.mean(0), rtol=1e-5)
        np.testing.assert_allclose(means[1], x.mean(0), rtol=1e-5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
