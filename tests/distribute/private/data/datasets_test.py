"""Tests that user code sees distributed datasets as under the stock strategy."""

import collections
import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.private.data.own_memory import with_own_memory
from tests.distribute import samples

NUM_REPLICAS = 4


def stock_strategy():
    devices = [f"CPU:{i}" for i in range(NUM_REPLICAS)]
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def dataset(num_examples=18, batch_size=8, **options):
    return tf.data.Dataset.range(1, num_examples + 1, output_type=tf.float32).batch(
        batch_size, **options
    )


def ragged_dataset():
    return tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1.0], [2.0, 3.0], []] * 4))


class _Masked(tf.experimental.BatchableExtensionType):
    rows: tf.RaggedTensor
    mask: tf.Tensor


class _OfWholeBatches(tf.experimental.ExtensionType):
    values: tf.Tensor


class DistributedDatasetTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.strategy = TernGradStrategy(NUM_REPLICAS)

    def rows(self, batch):
        return [np.asarray(v).tolist() for v in self.strategy.experimental_local_results(batch)]

    def test_datasets_and_iterators_are_arguments_of_functions(self):
        strategy = self.strategy
        distributed = strategy.experimental_distribute_dataset(dataset())
        traces = []

        def sum_of(batch):
            return strategy.reduce("SUM", strategy.run(tf.reduce_sum, args=(batch,)), axis=None)

        @tf.function
        def epoch(batches):
            traces.append(batches)
            total = 0.0
            for batch in batches:
                total += sum_of(batch)
            return total

        @tf.function
        def step(iterator):
            return sum_of(next(iterator))

        @tf.function(input_signature=[distributed.element_spec])
        def step_of_batch(batch):
            traces.append(batch)
            return sum_of(batch)

        expected = [36.0, 100.0, 35.0]
        self.assertEqual(float(epoch(distributed)), sum(expected))
        self.assertEqual(float(epoch(distributed)), sum(expected))
        self.assertLen(traces, 1)
        iterator = iter(distributed)
        self.assertEqual([float(step(iterator)) for _ in expected], expected)
        with self.assertRaises(tf.errors.OutOfRangeError):
            step(iterator)
        self.assertEqual([float(step_of_batch(batch)) for batch in distributed], expected)
        self.assertLen(traces, 2)

    def test_an_iterator_ends_inside_a_function(self):
        for batches in (dataset(), dataset(drop_remainder=True), ragged_dataset().batch(5)):
            distributed = self.strategy.experimental_distribute_dataset(batches)

            @tf.function
            def count(iterator):
                steps = 0
                optional = iterator.get_next_as_optional()
                while optional.has_value():
                    steps += 1
                    optional = iterator.get_next_as_optional()
                return steps

            self.assertEqual(int(count(iter(distributed))), int(batches.cardinality()))

    def test_batches_have_one_part_a_replica(self):
        batches = list(self.strategy.experimental_distribute_dataset(dataset()))
        self.assertEqual(self.rows(batches[0]), [[1, 2], [3, 4], [5, 6], [7, 8]])
        self.assertEqual(self.rows(batches[2]), [[17], [18], [], []])

    def test_batches_are_reduced_and_gathered_as_by_the_stock_strategy(self):
        results = []
        for strategy in (stock_strategy(), self.strategy):
            batches = list(strategy.experimental_distribute_dataset(dataset()))
            results.append(
                [
                    strategy.reduce("SUM", batches[0], axis=None),
                    strategy.reduce("MEAN", batches[0], axis=None),
                    strategy.reduce("SUM", batches[0], axis=0),
                    strategy.reduce("MEAN", batches[2], axis=0),
                    strategy.gather(batches[1], axis=0),
                    strategy.gather(batches[2], axis=0),
                ]
            )
        for stock, ours in zip(*results, strict=True):
            self.assertAllEqual(stock, ours)

    def test_specs_are_those_of_the_stock_strategy(self):
        pairs = tf.data.Dataset.zip((dataset(), {"label": dataset()}))
        sparse = tf.data.Dataset.from_tensors(tf.sparse.eye(8))
        for batches in (
            dataset(),
            dataset(drop_remainder=True),
            dataset(batch_size=10, drop_remainder=True),
            ragged_dataset().batch(8, drop_remainder=True),
            sparse,
            pairs,
        ):
            stock, ours = (
                strategy.experimental_distribute_dataset(batches)
                for strategy in (stock_strategy(), self.strategy)
            )
            self.assertEqual(stock.element_spec, ours.element_spec)
            self.assertEqual(iter(stock).element_spec, iter(ours).element_spec)

    def test_strings_ragged_and_sparse_rows_are_all_there(self):
        ragged = tf.ragged.constant([[b"a"], [b"b", b"c"], [], [b"d"], [b"e"], [b"f"]])
        batches = tf.data.Dataset.from_tensors((ragged, ragged.to_tensor()))
        ((ragged_parts, dense_parts),) = self.strategy.experimental_distribute_dataset(batches)
        parts = self.strategy.experimental_local_results(ragged_parts)
        self.assertEqual([p.nrows().numpy() for p in parts], [2, 2, 1, 1])
        self.assertEqual(tf.concat(parts, 0).to_list(), ragged.to_list())
        self.assertAllEqual(np.concatenate(self.rows(dense_parts)), ragged.to_tensor())
        matrix = tf.sparse.from_dense(tf.reshape(tf.range(15), [5, 3]))
        (batch,) = self.strategy.experimental_distribute_dataset(
            tf.data.Dataset.from_tensors(matrix)
        )
        parts = self.strategy.experimental_local_results(batch)
        self.assertAllEqual(
            tf.sparse.to_dense(tf.sparse.concat(0, list(parts))), tf.sparse.to_dense(matrix)
        )

    def test_steps_take_parts_of_ragged_rows_that_differ_in_number(self):
        even, uneven = (
            next(iter(self.strategy.experimental_distribute_dataset(ragged_dataset().batch(size))))
            for size in (12, 6)
        )

        @tf.function
        def step(batch):
            def replica(rows):
                return rows.nrows(), tf.reduce_sum(tf.reduce_sum(rows, 1))

            numbers = self.strategy.run(replica, args=(batch,))
            return [self.strategy.reduce("SUM", number, axis=None) for number in numbers]

        self.assertAllEqual(step(even), [12, 24])
        self.assertAllEqual(step(uneven), [6, 12])

    def test_values_of_a_users_type_are_divided(self):
        rows = tf.ragged.constant([[1.0], [2.0, 3.0], []] * 2)
        source = tf.data.Dataset.from_tensor_slices(_Masked(rows, tf.range(6) > 0))

        def replica(value):
            rows = tf.reduce_sum(tf.where(value.mask, tf.reduce_sum(value.rows, 1), 0))
            return rows, value.rows.nrows(), tf.size(value.mask)

        @tf.function
        def step(batch):
            numbers = self.strategy.run(replica, args=(batch,))
            return [self.strategy.reduce("SUM", number, axis=None) for number in numbers]

        distributed = self.strategy.experimental_distribute_dataset(source.batch(5))
        self.assertAllEqual([step(batch) for batch in distributed], [[11, 5, 5], [0, 1, 1]])

    def test_a_users_type_without_rows_is_refused(self):
        whole = dataset().map(_OfWholeBatches)
        with self.assertRaisesRegex(ValueError, "what has no batch axis cannot be split"):
            self.strategy.experimental_distribute_dataset(whole)

    def test_a_dataset_without_a_batch_axis_is_refused(self):
        with self.assertRaisesRegex(ValueError, "Call `batch` on the dataset.*4 replicas"):
            self.strategy.experimental_distribute_dataset(tf.data.Dataset.range(8))
        one = TernGradStrategy(1).experimental_distribute_dataset(tf.data.Dataset.range(8))
        self.assertLen(list(one), 8)


class OwnMemoryTest(tf.test.TestCase):
    def test_steps_do_not_write_into_the_arrays_of_a_generator(self):
        labels = samples.aligned(np.random.default_rng(0).normal(size=[64, 16]))
        before = labels.copy()
        spec = tf.TensorSpec([None, 16])
        dataset = tf.data.Dataset.from_generator(
            lambda: (labels[i : i + 8] for i in range(0, 64, 8)), output_signature=spec
        )

        @tf.function
        def step(iterator):
            # TensorFlow computes in the memory of a tensor that nothing else uses.
            return next(iterator) - 1.0

        iterator = iter(with_own_memory(dataset).rebatch(4))
        for part in np.split(before, 16):
            self.assertAllEqual(step(iterator), part - 1.0)
        self.assertAllEqual(labels, before)

    def test_elements_keep_their_structure(self):
        pair = collections.namedtuple("pair", "x y")
        numbers = np.arange(12, dtype=np.float32).reshape(6, 2)
        for elements in (
            numbers,
            (numbers,),
            pair(numbers, numbers),
            ({"a": numbers > 3, "b": np.array(list("abcdef"))}, None),
            (tf.RaggedTensor.from_row_lengths(range(12), [2] * 6), tf.sparse.from_dense(numbers)),
        ):
            dataset = tf.data.Dataset.from_tensor_slices(elements).batch(4)
            copied = with_own_memory(dataset)
            self.assertEqual(copied.element_spec, dataset.element_spec)
            self.assertEqual(int(copied.cardinality()), 2)
            for expected, got in zip(dataset, copied, strict=True):
                tf.nest.map_structure(
                    self.assertAllEqual,
                    *(tf.nest.flatten(e, expand_composites=True) for e in (expected, got)),
                )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
