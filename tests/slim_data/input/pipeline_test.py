"""Batches from shards: values, order, position, and parts for several processes."""

import collections
import itertools
import os
import sys

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import slim_data
from tests.slim_data import samples

SIZES = (13, 9, 11, 10, 14)  # uneven on purpose; 57 examples
NUM_EXAMPLES = sum(SIZES)


def numbers(dataset, num_batches=None):
    """Returns the numbers of the examples in each batch, as lists."""
    batches = dataset if num_batches is None else dataset.take(num_batches)
    found = []
    for images, labels in batches.as_numpy_iterator():
        found.append(samples.brightness(images))
        assert [n % 10 for n in found[-1]] == labels.tolist()
    return found


class PipelineTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        samples.write_numbered(self.folder, SIZES)
        samples.write_numbered(self.folder, [7, 4], "test")

    def load(self, split="train", batch_size=8, image_size=28, training=True, **options):
        options.setdefault("repeat", training)
        return slim_data.load(
            "mnist", self.folder, split, batch_size, image_size, training, **options
        )

    def order(self, num_batches=20, **options):
        options = {"shuffle_buffer": 16, **options}
        return numbers(self.load(**options), num_batches)

    def assert_refused(self, parts, **options):
        with self.assertRaises(slim_data.DataError) as caught:
            self.load(**options)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_images_are_scaled_to_one_and_minus_one(self):
        source = samples.new_folder(self)
        content = samples.write_mnist(source, 5, 7)["test"]
        slim_data.convert("mnist", source, allow_other_archives=True)
        dataset = slim_data.load("mnist", source, "test", 4, 28, training=False)
        images, labels = zip(*dataset.as_numpy_iterator(), strict=True)
        self.assertEqual([len(batch) for batch in images], [4, 3])
        expected = (content[0][..., np.newaxis].astype(np.float64) / 255 - 0.5) * 2
        self.assertAllClose(np.concatenate(images), expected, rtol=0, atol=2e-7)
        self.assertAllEqual(np.concatenate(labels), content[1])

    def test_shapes_and_types_are_known_beforehand(self):
        train, test = self.load(), self.load("test", training=False)
        for dataset, size in ((train, 8), (test, None)):
            images, labels = dataset.element_spec
            self.assertEqual(images, tf.TensorSpec([size, 28, 28, 1], tf.float32))
            self.assertEqual(labels, tf.TensorSpec([size], tf.int32))
        self.assertEqual(train.cardinality(), tf.data.INFINITE_CARDINALITY)
        self.assertEqual(test.cardinality(), 2)
        once = dict(repeat=False, start_step=2)
        self.assertEqual(self.load(**once).cardinality(), 6)
        self.assertEqual(self.load(**once, drop_remainder=True).cardinality(), 5)

    def test_images_are_cropped_or_padded_around_the_centre(self):
        image = np.arange(1, 28 * 28 + 1).reshape(28, 28, 1) % 256
        record = samples.example(tf.io.encode_png(image.astype(np.uint8)).numpy(), 3)
        folder = samples.new_folder(self)
        samples.write_records(os.path.join(folder, "test-mnist.tfrecord"), [record])
        scaled = image / 255 * 2 - 1
        for size, expected in (
            (24, scaled[2:26, 2:26]),
            (25, scaled[1:26, 1:26]),
            (32, np.pad(scaled, [(2, 2), (2, 2), (0, 0)], constant_values=-1)),
            (31, np.pad(scaled, [(1, 2), (1, 2), (0, 0)], constant_values=-1)),
        ):
            dataset = slim_data.load("mnist", folder, "test", 1, size, training=False)
            self.assertAllClose(next(iter(dataset))[0][0], expected, atol=1e-6)
            resized = tf.image.resize_with_crop_or_pad(scaled + 1, size, size) - 1
            self.assertAllClose(resized, expected, atol=1e-6)

    def test_evaluation_is_in_order_and_exact(self):
        one_file_after_the_other = dict(batch_size=4, training=False, num_readers=1)
        dataset = self.load("test", **one_file_after_the_other)
        self.assertEqual(numbers(dataset), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]])
        dataset = self.load("test", **one_file_after_the_other, drop_remainder=True)
        self.assertEqual(numbers(dataset), [[0, 1, 2, 3], [4, 5, 6, 7]])

    def test_evaluation_takes_files_in_turns(self):
        expected = [0, 7, 1, 8, 2, 9, 3, 10, 4, 5, 6]
        for num_parallel_calls in (1, 4):
            dataset = self.load("test", training=False, num_parallel_calls=num_parallel_calls)
            self.assertEqual(sum(numbers(dataset), []), expected)

    @hypothesis.settings(deadline=None, max_examples=8, derandomize=True)
    @hypothesis.given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 3))
    @pytest.mark.slow
    def test_evaluation_counts_every_example_once(self, batch_size, num_readers, num_pipelines):
        flat = []
        for i in range(num_pipelines):
            dataset = self.load(
                batch_size=batch_size,
                training=False,
                num_readers=num_readers,
                num_input_pipelines=num_pipelines,
                input_pipeline_id=i,
            )
            found = numbers(dataset)
            self.assertLen(found, dataset.cardinality())
            flat += sum(found, [])
        self.assertCountEqual(flat, range(NUM_EXAMPLES))

    def test_evaluation_repeats_on_request(self):
        dataset = self.load("test", batch_size=4, training=False, repeat=True, num_readers=1)
        flat = sum(numbers(dataset, 5), [])
        self.assertEqual(flat, [*range(11), *range(9)])

    def test_every_epoch_holds_every_example_once_in_another_order(self):
        flat = sum(self.order(batch_size=1, num_batches=3 * NUM_EXAMPLES), [])
        epochs = [flat[i : i + NUM_EXAMPLES] for i in range(0, len(flat), NUM_EXAMPLES)]
        for epoch in epochs:
            self.assertCountEqual(epoch, range(NUM_EXAMPLES))
        self.assertLen(set(map(tuple, epochs)), 3)

    def test_a_pass_is_an_epoch_in_its_own_order(self):
        def passes():
            dataset = slim_data.load("mnist", self.folder, "train", 8, 28, training=True)
            self.assertEqual(dataset.cardinality(), -(-NUM_EXAMPLES // 8))
            return [tuple(sum(numbers(dataset), [])) for _ in range(3)]

        first = passes()
        for found in first:
            self.assertCountEqual(found, range(NUM_EXAMPLES))
        self.assertLen(set(first), 3)
        tf.random.set_seed(1234)
        self.assertEqual(passes(), first)

    def test_fit_ends_after_its_epochs(self):
        keras = tf.keras
        model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        train = slim_data.load("mnist", self.folder, "train", 8, 28, training=True)
        history = model.fit(train, epochs=2, verbose=0)
        self.assertLen(history.epoch, 2)

    def test_the_order_depends_on_the_seed_alone(self):
        first = self.order()
        self.assertEqual(self.order(), first)
        self.assertEqual(self.order(num_parallel_calls=1), first)
        self.assertNotEqual(self.order(seed=2), first)
        tf.random.set_seed(1234)
        self.addCleanup(tf.random.set_seed, 0)
        self.assertEqual(self.order(), first)

    @pytest.mark.slow
    def test_files_are_shuffled_beyond_the_reach_of_the_buffer(self):
        def first_file(seed):
            first = self.order(seed=seed, num_readers=1, shuffle_buffer=1, num_batches=1)[0][0]
            return np.searchsorted(np.cumsum(SIZES), first, side="right")

        self.assertGreater(len({first_file(seed) for seed in range(8)}), 2)

    def test_readers_interleave_files(self):
        def num_files(num_readers):
            first = self.order(num_readers=num_readers, shuffle_buffer=1, num_batches=1)[0]
            return len(set(np.searchsorted(np.cumsum(SIZES), first, side="right")))

        self.assertEqual(num_files(1), 1)
        self.assertEqual(num_files(4), 4)

    @hypothesis.settings(deadline=None, max_examples=8, derandomize=True)
    @hypothesis.given(
        start=st.integers(0, 60),
        batch_size=st.sampled_from([1, 5, 8, 100]),
        pipelines=st.sampled_from([(1, 0), (2, 1), (5, 3)]),
    )
    @pytest.mark.slow
    def test_a_stream_started_at_a_step_equals_the_rest_of_the_whole(
        self, start, batch_size, pipelines
    ):
        options = dict(
            batch_size=batch_size, num_input_pipelines=pipelines[0], input_pipeline_id=pipelines[1]
        )
        whole = self.order(num_batches=start + 5, **options)
        self.assertEqual(self.order(num_batches=5, start_step=start, **options), whole[start:])

    def test_rows_equal_those_of_the_whole_batch(self):
        whole = self.order(num_batches=10, batch_size=7)
        for first, end in ((0, 2), (2, 3), (3, 7)):
            part = self.order(num_batches=6, batch_size=7, rows=(first, end), start_step=4)
            self.assertEqual(part, [batch[first:end] for batch in whole[4:]])
        images, _ = self.load(rows=(2, 8)).element_spec
        self.assertEqual(images.shape, [6, 28, 28, 1])

    def test_a_start_skips_batches_of_a_single_epoch(self):
        dataset = self.load("test", batch_size=4, training=False, start_step=2, num_readers=1)
        self.assertEqual(numbers(dataset), [[8, 9, 10]])
        self.assertEqual(numbers(self.load("test", training=False, start_step=3)), [])

    @pytest.mark.slow
    def test_pipelines_divide_every_epoch_among_them(self):
        # 5 pipelines take one of the 5 files each; 3 pipelines take every third record.
        for num_pipelines, sizes in ((5, SIZES), (3, (19, 19, 19))):
            epochs = collections.Counter()
            for i, size in enumerate(sizes):
                part = dict(num_input_pipelines=num_pipelines, input_pipeline_id=i)
                flat = sum(self.order(batch_size=1, num_batches=2 * size, **part), [])
                epochs.update(itertools.product([0], flat[:size]))
                epochs.update(itertools.product([1], flat[size:]))
            expected = itertools.product(range(2), range(NUM_EXAMPLES))
            self.assertEqual(epochs, collections.Counter(expected), num_pipelines)

    def test_pipelines_divide_an_evaluation_among_them(self):
        for num_pipelines in (2, 3):
            parts = [
                sum(
                    numbers(
                        self.load(
                            "test",
                            training=False,
                            num_input_pipelines=num_pipelines,
                            input_pipeline_id=i,
                        )
                    ),
                    [],
                )
                for i in range(num_pipelines)
            ]
            self.assertCountEqual(sum(parts, []), range(11))

    def test_many_files_are_divided_by_file(self):
        folder = samples.new_folder(self)
        samples.write_numbered(folder, [2] * 21)
        dataset = slim_data.load(
            *("mnist", folder, "train", 1, 28, True), repeat=False, num_input_pipelines=2
        )
        flat = sum(numbers(dataset), [])
        self.assertCountEqual(flat, [n for n in range(42) if n // 2 % 2 == 0])

    def test_the_sharding_policy_is_set(self):
        policy = tf.data.experimental.AutoShardPolicy
        for options, expected in (
            ({}, policy.DATA),
            ({"num_input_pipelines": 2, "input_pipeline_id": 1}, policy.OFF),
            ({"rows": (0, 3)}, policy.OFF),
        ):
            found = self.load(**options).options()
            self.assertEqual(found.experimental_distribute.auto_shard_policy, expected)
            self.assertTrue(found.deterministic)

    def test_arguments_out_of_range_are_refused(self):
        for options in (
            {"batch_size": 0},
            {"batch_size": 2.0},
            {"image_size": -1},
            {"num_readers": 0},
            {"shuffle_buffer": 0},
            {"num_parallel_calls": 0},
            {"start_step": -1},
            {"seed": 1.5},
            {"seed": 2**63},
            {"num_input_pipelines": 0},
            {"input_pipeline_id": -1},
        ):
            ((name, value),) = options.items()
            self.assert_refused([f"`{name}` must be", f"Received: {name}={value}"], **options)
        parts = ["`input_pipeline_id` must be less than num_input_pipelines=2"]
        self.assert_refused(parts, num_input_pipelines=2, input_pipeline_id=2)
        for rows, rule in (((3, 3), "not empty"), ((-1, 2), "not empty"), ((4, 9), "batch_size=8")):
            self.assert_refused(["`rows`", rule, f"Received: rows={rows}"], rows=rows)
        parts = ["`rows` must not be given without `drop_remainder`"]
        self.assert_refused(parts, rows=(0, 2), drop_remainder=False)

    def test_more_pipelines_than_examples_are_refused(self):
        parts = ["`num_input_pipelines`", "number of examples", "58"]
        self.assert_refused(parts, num_input_pipelines=58, input_pipeline_id=57)

    def test_a_strategy_divides_batches_and_loses_none(self):
        strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
        dataset = strategy.experimental_distribute_dataset(
            self.load("test", batch_size=4, training=False, num_readers=1)
        )
        found = [samples.brightness(images) for images, _ in dataset]
        self.assertEqual(found, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
