"""Which examples each host of a cluster reads."""

import collections
import itertools
import os
import shutil
import sys

import pytest
import tensorflow as tf

import slim_data
from terngrad_tf import training
from terngrad_tf.training.configs.data_config import DataConfig
from terngrad_tf.training.input import data, inputs
from tests import runs


class DataTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        cls.folder = str(cls.root / "data")
        slim_data.convert("digits", cls.folder, shard=True, train_shards=4)

    def fingerprint(self, folder):
        return data.fingerprint(DataConfig(data_dir=folder, dataset_name="digits"))

    def test_only_copies_have_the_fingerprint_of_the_original(self):
        whole = self.fingerprint(self.folder)
        copy = str(self.root / "copy")
        shutil.copytree(self.folder, copy)
        self.assertEqual(self.fingerprint(copy), whole)
        parts = [slim_data.split_dataset(copy, 2, index) for index in range(2)]
        self.assertLen({whole, *map(self.fingerprint, parts)}, 3)
        # Other records, with the same names and sizes of files.
        path = os.path.join(copy, "train-00003-of-00004")
        records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
        with tf.io.TFRecordWriter(path) as writer:
            for record in reversed(records):
                writer.write(record)
        self.assertNotEqual(self.fingerprint(copy), whole)

    def test_hosts_share_common_data_and_read_all_their_own_data(self):
        own = data.DatasetShard(10, 1, 100)
        shared = data.among_processes(own, ["a", "a", "a"], [100, 100, 100], 2)
        self.assertEqual(shared, data.DatasetShard(10, 1, 100, num_shards=3, index=2))
        separate = data.among_processes(own, ["a", "b"], [100, 90], 1)
        self.assertEqual(separate, data.DatasetShard(10, 1, 190, seed_offset=1))
        with self.assertRaisesRegex(
            training.UserError,
            "`data_dir` must .* Received: the same on worker 0, worker 2; others on worker 1$",
        ):
            data.among_processes(own, ["a", "b", "a"], [100, 90, 100], 0)

    def test_an_unknown_preprocessing_is_refused(self):
        config = DataConfig(data_dir=self.folder, dataset_name="digits")
        with self.assertRaisesRegex(training.UserError, "`preprocessing` must be .*'incepton'"):
            data.load(config, 2, 8, False, preprocessing="incepton")
        # A preprocessing of other data sets gives way to the data set's own.
        images, _ = next(iter(data.load(config, 2, 8, False, preprocessing="vgg")))
        self.assertEqual(images.shape, (2, 8, 8, 1))

    def labels(self, folder, subset, count):
        options = training.TrainConfig.of(
            train_dir="",
            data_dir=folder,
            dataset_name="digits",
            image_size=8,
            batch_size=20,
            input_queue_memory_factor=1,
        )
        batches = inputs.batches(options, 0, subset).take(count)
        return [images.numpy().tobytes() for batch, _ in batches for images in batch]

    def test_any_number_of_replicas_shares_the_same_batches(self):
        config = training.TrainConfig.of(
            train_dir="",
            data_dir=self.folder,
            dataset_name="digits",
            image_size=8,
            batch_size=7,
            input_queue_memory_factor=1,
        )
        shard = data.DatasetShard(10, 1, 1437, shares_batches=True)

        def parts(*bounds):
            batches = inputs.rows_of_batches(config, shard, 3, bounds)
            return [images.numpy() for images, _ in batches.take(2 * (len(bounds) - 1))]

        whole = parts(0, 7)
        self.assertEqual([part.shape for part in whole], [(7, 8, 8, 1)] * 2)
        steps = [images for images, _ in inputs.batches(config, 3, shard).take(2)]
        self.assertAllEqual(whole, steps)
        for processes in (
            [(0, 3), (3, 7)],
            [(0, 2), (2, 4), (4, 7)],
            [(0, 1, 2, 4), (4, 5, 6, 7)],
        ):
            found = [parts(*bounds) for bounds in processes]
            for step in range(2):
                rows = []
                for bounds, of_process in zip(processes, found, strict=True):
                    count = len(bounds) - 1
                    rows += of_process[step * count : (step + 1) * count]
                self.assertAllEqual(tf.concat(rows, 0), whole[step])
        spec, _ = inputs.rows_of_batches(config, shard, 0, (1, 3, 5, 7)).element_spec
        self.assertEqual(spec.shape, [2, 8, 8, 1])

    @pytest.mark.slow
    def test_workers_that_come_and_go_see_each_image_of_an_epoch_once(self):
        config = training.TrainConfig.of(
            train_dir="",
            data_dir=self.folder,
            dataset_name="digits",
            image_size=8,
            batch_size=35,
            input_queue_memory_factor=1,
        )
        shard = data.DatasetShard(10, 1, 1437, shares_batches=True)
        # (workers, first step, end step) of each generation. Steps that a generation did not save
        # are repeated.
        generations = [(3, 0, 12), (2, 10, 18), (1, 18, 26), (3, 25, 41)]
        rows_of = {}
        for workers, begin, end in generations:
            bounds = [35 * worker // workers for worker in range(workers + 1)]
            of_workers = [
                inputs.rows_of_batches(config, shard, begin, pair).take(end - begin)
                for pair in itertools.pairwise(bounds)
            ]
            for step, parts in enumerate(zip(*of_workers, strict=True), begin):
                rows_of[step] = [row.tobytes() for part, _ in parts for row in part.numpy()]
        found = [row for step in range(41) for row in rows_of[step]]
        # 41 batches of 35 are one epoch without its last 2 images.
        all_images = data.load(config.data, 479, 8, False, preprocessing="lenet").unbatch()
        left = collections.Counter(image.numpy().tobytes() for image, _ in all_images)
        self.assertEqual(left.total(), 1437)
        left.subtract(found)
        self.assertEqual(left.total(), 2)
        self.assertGreaterEqual(min(left.values()), 0)

    @pytest.mark.slow
    def test_shares_are_disjoint_and_own_copies_come_in_different_orders(self):
        num_examples = 700
        shares = [
            self.labels(self.folder, data.DatasetShard(10, 1, 1437, num_shards=2, index=i), 35)
            for i in range(2)
        ]
        self.assertLen(shares[0], num_examples)
        # Some images occur several times in the digits.
        self.assertLess(len(set(shares[0]) & set(shares[1])), 5)
        own = [
            self.labels(self.folder, data.DatasetShard(10, 1, 2874, seed_offset=i), 1)
            for i in (0, 1)
        ]
        self.assertNotEqual(own[0], own[1])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
