"""Synthetic input has a data set's shapes and can start at any step."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import training
from terngrad_tf.training.configs.data_config import DataConfig
from terngrad_tf.training.input import synthetic


class SyntheticTest(tf.test.TestCase):
    def batches(self, name, number, start_step=0, seed=1):
        examples = synthetic.load(name, 50, 8, seed=seed, start_step=start_step)
        return list(examples.take(number).as_numpy_iterator())

    def test_images_are_grey_and_labels_are_drawn_uniformly_from_all_classes(self):
        for name, classes, channels in (("mnist", range(10), 1), ("flowers", range(1, 6), 3)):
            batches = self.batches(name, 100)
            for images, labels in batches:
                self.assertAllEqual(images, np.full((50, 8, 8, channels), 0.5, np.float32))
                self.assertEqual((labels.shape, labels.dtype), ((50,), np.int32))
            counts = np.bincount(np.concatenate([labels for _, labels in batches]))
            self.assertEqual(np.flatnonzero(counts).tolist(), list(classes))
            # 5000 draws: five standard deviations of a count.
            mean = 5000 / len(classes)
            self.assertLess(np.max(np.abs(counts[counts > 0] - mean)), 5 * np.sqrt(mean))

    def test_a_start_in_the_middle_continues_the_stream_and_the_seed_selects_it(self):
        whole = [labels for _, labels in self.batches("mnist", 5)]
        rest = [labels for _, labels in self.batches("mnist", 2, start_step=3)]
        self.assertAllEqual(whole[3:], rest)
        self.assertNotAllEqual(whole[0], whole[1])
        self.assertNotAllEqual(whole[0], self.batches("mnist", 1, seed=2)[0][1])

    def test_a_description_needs_no_data(self):
        found = synthetic.find_dataset(DataConfig(data_dir="", dataset_name="imagenet"))
        self.assertEqual((found.num_classes, found.channels), (1001, 3))
        self.assertEqual(found.num_examples, 1281167)
        with self.assertRaisesRegex(training.UserError, "`subset` .*subset='test'"):
            config = DataConfig(data_dir="", dataset_name="imagenet", subset="test")
            synthetic.find_dataset(config)
        with self.assertRaisesRegex(training.UserError, "`benchmark_mode` needs .*'folder'"):
            synthetic.find_dataset(DataConfig(data_dir="x", dataset_name="folder"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
