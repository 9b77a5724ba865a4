"""Tests of orders that processes agree on, and of a pipeline's facts found by little reading."""

import random
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.private.data import agreed_seeds, epochs, pipelines, shuffled_arrays


def values(dataset):
    return [np.asarray(value).tolist() for value in dataset.as_numpy_iterator()]


def rows_of(array):
    """List of the rows of a dense, sparse or ragged array; texts are bytes."""
    if isinstance(array, tf.SparseTensor):
        array = tf.sparse.to_dense(array)
    if isinstance(array, tf.RaggedTensor):
        return [str(row) for row in array.to_list()]
    return tf.convert_to_tensor(array).numpy().tolist()


class SeedsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        TernGradStrategy(1)  # installs the replacements
        tf.random.set_seed(None)
        self.addCleanup(setattr, agreed_seeds, "_data_set_seeds", None)

    def draw(self, seed):
        agreed_seeds.seed_alike(seed, ())
        shuffled = tf.data.Dataset.range(20).shuffle(20)
        return [values(tf.data.Dataset.random().take(3)), values(shuffled), values(shuffled)]

    def test_data_sets_without_a_seed_follow_the_agreed_one(self):
        self.assertEqual(self.draw(5), self.draw(5))
        self.assertNotEqual(self.draw(5), self.draw(6))
        _, first, second = self.draw(5)
        self.assertNotEqual(first, second)
        seeds = [tf.data.Dataset.range(20).shuffle(20) for _ in range(2)]
        self.assertNotEqual(values(seeds[0]), values(seeds[1]))

    def test_seeds_of_the_program_win(self):
        own = [values(tf.data.Dataset.range(20).shuffle(20, seed=3)) for _ in range(2)]
        agreed_seeds.seed_alike(5, ())
        own.append(values(tf.data.Dataset.range(20).shuffle(20, seed=3)))
        self.assertEqual(own[1:], own[:1] * 2)
        orders = []
        for seed in (5, 6):
            agreed_seeds.seed_alike(seed, ())
            tf.random.set_seed(1)
            orders.append(values(tf.data.Dataset.range(20).shuffle(20)))
        tf.random.set_seed(None)
        self.assertEqual(*orders)

    def test_generators_that_were_used_are_not_unseeded(self):
        agreed_seeds.seed_alike(5, ["python", "numpy"])
        self.assertEqual(set(agreed_seeds.unseeded_generators()), {"python", "numpy"})
        first = random.random(), np.random.random()
        self.assertEmpty(agreed_seeds.unseeded_generators())
        agreed_seeds.seed_alike(5, ["python", "numpy"])
        self.assertEqual((random.random(), np.random.random()), first)


class ShuffledArraysTest(tf.test.TestCase):
    def batches(self, seed, shuffle=True, x=None):
        x = np.arange(10) if x is None else x
        adapter = ArrayDataAdapter(x, {"y": np.arange(10) + 100}, batch_size=4, shuffle=shuffle)
        return shuffled_arrays.shuffled_batches(adapter, seed)

    def test_each_epoch_has_all_rows_once_in_a_new_order_of_the_seed(self):
        epochs = {}
        for seed in (1, 1, 2):
            dataset = self.batches(seed)
            for _ in range(2):
                batches = list(dataset.as_numpy_iterator())
                self.assertEqual([len(x) for x, _ in batches], [4, 4, 2])
                rows = np.concatenate([x for x, _ in batches]).tolist()
                self.assertEqual(sorted(rows), list(range(10)))
                self.assertAllEqual(np.concatenate([y["y"] for _, y in batches]) - 100, rows)
                epochs.setdefault(seed, []).append(rows)
        self.assertEqual(epochs[1][:2], epochs[1][2:])
        self.assertNotEqual(epochs[1][0], epochs[1][1])
        self.assertNotEqual(epochs[1][0], epochs[2][0])

    def test_within_batches_rows_stay_in_theirs(self):
        for _ in range(2):
            batches = [x for x, _ in self.batches(1, "batch").as_numpy_iterator()]
            self.assertEqual([sorted(x) for x in batches], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        self.assertNotEqual(np.concatenate(batches).tolist(), list(range(10)))

    def test_batches_are_those_of_keras_for_any_arrays(self):
        dense = np.eye(10, dtype=np.float32)
        for x in (
            dense,
            [dense, dense],
            tf.sparse.from_dense(dense),
            tf.ragged.constant([[float(k)] * (k % 3) for k in range(10)]),
            np.array([str(k) for k in range(10)], object),
            dense.astype(np.float64),  # which Keras casts
        ):
            adapter = ArrayDataAdapter(x, np.arange(10), batch_size=4, shuffle=True)
            dataset = shuffled_arrays.shuffled_batches(adapter, 1)
            self.assertEqual(dataset.element_spec, adapter.get_tf_dataset().element_spec)
            for batch, places in dataset:
                for array, part in zip(
                    keras.tree.flatten(x), keras.tree.flatten(batch), strict=True
                ):
                    rows = [rows_of(array)[place] for place in places.numpy()]
                    self.assertEqual(np.array(rows).tolist(), np.array(rows_of(part)).tolist())


class Places(keras.utils.PyDataset):
    """Nine batches, each of its own place."""

    def __len__(self):
        return 9

    def __getitem__(self, place):
        return np.array([place])


class AgreedOrderTest(tf.test.TestCase):
    def orders(self, adapt, workers, between=lambda: None):
        """Orders of two trainings of two epochs each, which begin with Python's generator."""
        random.seed(7)
        orders = []
        for _ in range(2):
            adapter = adapt(PyDatasetAdapter(Places(workers=workers), shuffle=True))
            batches = adapter.get_tf_dataset()
            for _ in range(2):
                adapter.on_epoch_begin()
                orders.append([int(x[0][0]) for x in batches.as_numpy_iterator()])
                adapter.on_epoch_end()
                between()
        return orders

    def agreed(self, adapter):
        generator = random.Random()
        generator.setstate(random.getstate())
        return epochs.AgreedOrderAdapter(adapter, generator)

    def test_orders_are_those_of_keras_in_every_training(self):
        if hasattr(PyDatasetAdapter(Places(), shuffle=True), "_epoch"):
            self.skipTest("this release of Keras has the same orders on all processes")
        for workers in (1, 2):
            stock = self.orders(lambda adapter: adapter, workers)
            self.assertEqual(self.orders(self.agreed, workers), stock)
            self.assertLen(set(map(tuple, stock)), 4)

    def test_numbers_that_the_program_draws_do_not_change_a_trainings_order(self):
        drawn = []
        found = self.orders(self.agreed, 1, lambda: drawn.append(random.random()))
        self.assertEqual(found[:2], self.orders(self.agreed, 1)[:2])
        self.assertLen(set(map(tuple, found)), 4)
        self.assertLen(set(drawn), 4)


class PipelinesTest(tf.test.TestCase):
    def test_finds_pipelines_that_read_fewer_files_than_processes(self):
        files = tf.data.Dataset.from_tensor_slices(["a", "b"])
        records = tf.data.TFRecordDataset
        for dataset in (
            records(["a", "b"]).batch(4),
            files.flat_map(records).batch(4),
            files.interleave(records, num_parallel_calls=2).batch(4),
        ):
            self.assertFalse(pipelines.reads_fewer_files(dataset, 2))
            self.assertTrue(pipelines.reads_fewer_files(dataset, 3))
        self.assertFalse(pipelines.reads_fewer_files(tf.data.Dataset.range(2).batch(4), 3))

    def test_first_examples_are_those_before_shuffles_and_caches(self):
        numbers = tf.data.Dataset.range(100)
        found = pipelines.first_examples(numbers.batch(4))
        self.assertAllEqual(found["batch"], range(4))
        for dataset in (
            numbers.shuffle(50).batch(4),
            numbers.cache().map(lambda x: x + 1).shuffle(50).batch(4).prefetch(1),
            numbers.shuffle(50).cache().repeat().batch(4),
        ):
            ((*elements,),) = pipelines.first_examples(dataset)["elements"]
            self.assertAllEqual(elements, range(16))
        pair = tf.data.Dataset.zip(numbers.map(lambda x: -x), numbers.shuffle(9)).batch(4)
        first, second = pipelines.first_examples(pair)["elements"]
        self.assertAllEqual(np.abs(first), second)
        self.assertEqual(pipelines.first_examples(numbers.take(0).batch(4)), {"elements": [[]]})

    def test_orders_contain_seeds_and_the_number_of_reads(self):
        TernGradStrategy(1)
        dataset = tf.data.Dataset.range(9).shuffle(9, seed=4)
        batches = dataset.batch(3)
        before = pipelines.order_of(batches)
        self.assertEqual(before, pipelines.order_of(dataset))
        pipelines.first_examples(batches)
        self.assertEqual(pipelines.order_of(batches), before)
        next(iter(dataset.take(1)))
        ((*seeds, count),) = before
        self.assertEqual(pipelines.order_of(batches), [[*seeds, count + 1]])
        fixed = tf.data.Dataset.range(9).shuffle(9, seed=4, reshuffle_each_iteration=False)
        list(fixed)
        self.assertEqual(pipelines.order_of(fixed), before)
        self.assertEqual(pipelines.order_of(tf.data.Dataset.range(3)), [])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
