"""The handwritten digits of scikit-learn as records."""

import sys
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from sklearn import datasets as sklearn_datasets

import slim_data
from slim_data.datasets import digits
from tests.slim_data import samples

NAMES = "zero one two three four five six seven eight nine".split()


def interpolate(image, i, j):
    """Interpolates an 8 x 8 image bilinearly at pixel (i, j) of 28 x 28, in exact fractions."""

    def neighbours(target):
        position = (Fraction(target) + Fraction(1, 2)) * Fraction(8, 28) - Fraction(1, 2)
        low = position.numerator // position.denominator
        fraction = position - low
        return [(min(max(low, 0), 7), 1 - fraction), (min(max(low + 1, 0), 7), fraction)]

    return sum(
        wy * wx * int(image[y, x]) for y, wy in neighbours(i) for x, wx in neighbours(j)
    ) * Fraction(255, 16)


class DigitsTest(tf.test.TestCase):
    def test_enlarged_images_are_the_rounded_exact_interpolation(self):
        image = sklearn_datasets.load_digits().images[5]
        enlarged = digits.enlarge(image)
        self.assertEqual((enlarged.shape, enlarged.dtype), ((28, 28, 1), np.uint8))
        for i in range(28):
            for j in range(28):
                exact = interpolate(image, i, j)
                expected = (2 * exact.numerator + exact.denominator) // (2 * exact.denominator)
                self.assertEqual(enlarged[i, j, 0], expected, (i, j))

    def test_constant_images_stay_constant(self):
        self.assertAllEqual(digits.enlarge(np.full((8, 8), 16)), np.full((28, 28, 1), 255))
        self.assertAllEqual(digits.enlarge(np.zeros((8, 8), int)), np.zeros((28, 28, 1)))

    def test_splits_are_disjoint_whole_and_stratified(self):
        labels = sklearn_datasets.load_digits().target
        split = digits.split_indices(labels)
        self.assertEqual({k: len(v) for k, v in split.items()}, {"train": 1437, "test": 360})
        self.assertAllEqual(np.sort(np.concatenate(list(split.values()))), np.arange(1797))
        share = np.bincount(labels[split["test"]]) - np.bincount(labels) / 5
        self.assertLess(np.abs(share).max(), 1)

    def test_records_hold_the_source_exactly(self):
        folder = samples.new_folder(self)
        files = slim_data.convert("digits", folder, shard=True, train_shards=3)
        source = sklearn_datasets.load_digits()
        split = digits.split_indices(source.target)
        for name, paths in files.items():
            records = samples.read(paths)
            self.assertLen(records, slim_data.info("digits").splits[name])
            expected = [digits.enlarge(source.images[i]) for i in split[name]]
            self.assertAllEqual([record["pixels"] for record in records], expected)
            labels = source.target[split[name]]
            self.assertAllEqual([record["image/class/label"] for record in records], labels)
            texts = [record["image/class/text"].decode() for record in records]
            self.assertEqual(texts, [NAMES[label] for label in labels])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
