"""MNIST's official files, as records."""

import gzip
import os
import struct
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets import mnist
from slim_data.datasets.sources import labels_file
from tests.slim_data import samples

IMAGES, LABELS = samples.MNIST_FILES["train"]


class MnistTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.raw_dir = samples.new_folder(self)
        self.content = samples.write_mnist(self.raw_dir)

    def write(self, name, data):
        with gzip.open(os.path.join(self.raw_dir, name), "wb") as file:
            file.write(data)

    def assert_refused(self, *parts):
        """Checks that converting fails with one line with all `parts`, and leaves no whole file."""
        folder = samples.new_folder(self)
        with self.assertRaises(slim_data.DataError) as caught:
            slim_data.convert(
                "mnist", folder, raw_dir=self.raw_dir, source="files", allow_other_archives=True
            )
        message = str(caught.exception)
        self.assertNotIn("\n", message)
        for part in parts:
            self.assertIn(part, message)
        self.assertEqual(os.listdir(folder), [])

    def test_records_hold_the_source_exactly(self):
        folder = samples.new_folder(self)
        files = slim_data.convert("mnist", folder, raw_dir=self.raw_dir, allow_other_archives=True)
        for split, (images, labels) in self.content.items():
            self.assertEqual(files[split], [os.path.join(folder, f"{split}-mnist.tfrecord")])
            records = samples.read(files[split])
            self.assertLen(records, len(labels))
            for record, image, label in zip(records, images, labels, strict=True):
                self.assertAllEqual(record["pixels"], image[..., np.newaxis])
                self.assertEqual(record["image/class/label"], label)
                self.assertEqual(record["image/class/text"].decode(), labels_file.DIGITS[label])
                self.assertEqual(record["image/format"], b"png")
                self.assertEqual(record["image/colorspace"], b"RGB")
                size = [record[f"image/{key}"] for key in ("height", "width", "channels")]
                self.assertEqual(size, [28, 28, 1])
                for corner in ("xmin", "xmax", "ymin", "ymax"):
                    self.assertEqual(record[f"image/object/bbox/{corner}"].size, 0)

    def test_any_part_of_a_split_can_be_read(self):
        builder = mnist.Mnist(self.raw_dir)
        whole = list(builder.generate_examples("train"))
        self.assertLen(whole, builder.num_examples("train"))
        for start, stop in ((0, 23), (3, 5), (20, 23), (23, 23)):
            part = list(builder.generate_examples("train", start, stop))
            self.assertEqual(part, whole[start:stop])

    def test_absent_files_are_all_named(self):
        os.remove(os.path.join(self.raw_dir, LABELS))
        self.assert_refused(
            "`raw_dir`", f"without {LABELS}", *sum(samples.MNIST_FILES.values(), ())
        )

    def test_wrong_magic_number_is_refused(self):
        self.write(IMAGES, samples.idx_images(self.content["train"][0], magic=2049))
        self.assert_refused(IMAGES, "magic number must be 2051", "2049")

    def test_different_counts_are_refused(self):
        self.write(LABELS, samples.idx_labels(self.content["train"][1][:-1]))
        self.assert_refused(LABELS, "22 labels for 23 images")

    def test_other_image_sizes_are_refused(self):
        self.write(IMAGES, samples.idx_images(np.zeros((23, 20, 28), np.uint8)))
        self.assert_refused(IMAGES, "28 x 28", "20 x 28")

    def test_labels_out_of_range_are_refused(self):
        labels = self.content["train"][1].copy()
        labels[4] = 10
        self.write(LABELS, samples.idx_labels(labels))
        self.assert_refused(LABELS, "item 4", "label 10")

    def test_files_without_images_are_refused(self):
        self.write(IMAGES, samples.idx_images(np.zeros((0, 28, 28), np.uint8)))
        self.write(LABELS, samples.idx_labels(np.zeros(0, np.uint8)))
        self.assert_refused(IMAGES, "no images")

    def test_headers_that_declare_too_much_are_refused(self):
        for name, magic in ((IMAGES, 2051), (LABELS, 2049)):
            size = struct.pack(">2I", 28, 28) if name == IMAGES else b""
            self.write(name, struct.pack(">2I", magic, 2**32 - 1) + size)
        self.assert_refused(IMAGES, "more than", str(2**32 - 1))

    def test_short_content_is_refused(self):
        self.write(IMAGES, samples.idx_images(self.content["train"][0])[:-1])
        self.assert_refused(IMAGES, "truncated")
        self.write(IMAGES, b"\0\0")
        self.assert_refused(IMAGES, "truncated")

    def test_long_content_is_refused(self):
        self.write(LABELS, samples.idx_labels(self.content["train"][1]) + b"\0")
        self.assert_refused(LABELS, "longer than its header says")

    def test_truncated_gzip_is_refused_wherever_it_ends(self):
        path = os.path.join(self.raw_dir, IMAGES)
        whole = samples.contents(self.raw_dir)[IMAGES]
        for size in (5, 20, len(whole) // 2, len(whole) - 4):
            with open(path, "wb") as file:
                file.write(whole[:size])
            self.assert_refused(IMAGES, "truncated")

    def test_damaged_gzip_is_refused(self):
        path = os.path.join(self.raw_dir, IMAGES)
        samples.flip_bit(path, os.path.getsize(path) - 8)  # the checksum at the end
        self.assert_refused(IMAGES, "gzip")
        with open(path, "wb") as file:
            file.write(b"<html>Not found</html>")
        self.assert_refused(IMAGES, "gzip")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
