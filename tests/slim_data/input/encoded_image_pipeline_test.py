"""Batches of photos: counts, order, position, parts, styles and formats."""

import os
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.input import validation
from slim_data.tfrecord import corruption
from tests.slim_data import photos, samples

SIZES = (7, 4, 9)
NUM_EXAMPLES = sum(SIZES)
STYLES = ("inception", "alexnet", "vgg", "resnet")


class EncodedImagePipelineTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = [photos.pixels(20 + 3 * i, 30 + i % 4, seed=i) for i in range(NUM_EXAMPLES)]
        cls.encoded = [photos.jpeg(image) for image in cls.images]

    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.write("train", [photos.example(e, i + 1) for i, e in enumerate(self.encoded)])

    def write(self, split, records):
        records = iter(records)
        for i, size in enumerate(SIZES):
            path = os.path.join(self.folder, f"{split}-{i:05d}-of-{len(SIZES):05d}")
            samples.write_records(path, [next(records) for _ in range(size)])

    def load(self, training, batch_size=4, *, name="imagenet", split="train", size=16, **options):
        options = {"shuffle_buffer": 8, "repeat": training, **options}
        return slim_data.load(name, self.folder, split, batch_size, size, training, **options)

    def batches(self, num_batches, training=True, **options):
        stream = self.load(training, **options).take(num_batches)
        images, labels = zip(*stream.as_numpy_iterator(), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    def test_evaluation_yields_every_example_once_whatever_the_batch(self):
        for batch_size in (1, 3, 7, 20, 64):
            dataset = self.load(False, batch_size)
            images, labels = zip(*dataset.as_numpy_iterator(), strict=True)
            self.assertCountEqual(np.concatenate(labels), range(1, NUM_EXAMPLES + 1))
            self.assertLen(images, dataset.cardinality())
            self.assertEqual(images[0].dtype, np.float32)

    def test_evaluated_images_belong_to_their_labels(self):
        images, labels = self.batches(5, training=False, preprocessing="alexnet")
        for image, label in zip(images, labels, strict=True):
            pixels = photos.decode(self.encoded[label - 1])
            expected = photos.resized(pixels, 256, 256)[120:136, 120:136]
            self.assertAllClose(image, expected - [123.68, 116.78, 103.94], atol=2e-3)

    def test_the_default_style_is_inceptions(self):
        for training in (True, False):
            default, _ = self.batches(2, training)
            named, _ = self.batches(2, training, preprocessing="inception")
            self.assertAllEqual(default, named)

    @pytest.mark.slow
    def test_every_style_resumes_from_a_step(self):
        for style in STYLES:
            whole, labels = self.batches(8, preprocessing=style)
            self.assertEqual(whole.shape, (32, 16, 16, 3))
            for step in (1, 6):
                rest, rest_labels = self.batches(
                    8 - step, start_step=step, num_parallel_calls=2, preprocessing=style
                )
                self.assertAllEqual(rest, whole[4 * step :])
                self.assertAllEqual(rest_labels, labels[4 * step :])
            other, _ = self.batches(8, seed=2, preprocessing=style)
            self.assertNotAllClose(other, whole)

    def test_an_image_differs_from_epoch_to_epoch(self):
        images, labels = self.batches(10)
        for label in range(1, NUM_EXAMPLES + 1):
            first, second = images[labels == label]
            self.assertNotAllClose(first, second)

    @pytest.mark.long
    def test_pipelines_divide_epochs_and_resume_from_any_step(self):
        for num_pipelines, sizes in ((2, (10, 10)), (3, SIZES)):
            seen = [[], []]
            for i, size in enumerate(sizes):
                part = dict(batch_size=1, num_input_pipelines=num_pipelines, input_pipeline_id=i)
                images, labels = self.batches(2 * size, **part)
                seen[0] += labels[:size].tolist()
                seen[1] += labels[size:].tolist()
                step = size + 2
                rest, _ = self.batches(2 * size - step, start_step=step, **part)
                self.assertAllEqual(rest, images[step:])
            for epoch in seen:
                self.assertCountEqual(epoch, range(1, NUM_EXAMPLES + 1))

    def test_rows_equal_those_of_the_whole_batch(self):
        whole, labels = self.batches(8)
        rest, rest_labels = self.batches(6, rows=(1, 3), start_step=2)
        kept = [4 * step + row for step in range(2, 8) for row in (1, 2)]
        self.assertAllEqual(rest, whole[kept])
        self.assertAllEqual(rest_labels, labels[kept])

    @pytest.mark.slow
    def test_formats_give_the_same_batches(self):
        pixels = [photos.decode(encoded) for encoded in self.encoded]
        others = {
            "pixels": [photos.raw_example(image, i + 1) for i, image in enumerate(pixels)],
            "png": [
                photos.example(tf.io.encode_png(image).numpy(), i + 1)
                for i, image in enumerate(pixels)
            ],
        }
        expected = {
            (style, training): self.batches(3, training, preprocessing=style)
            for style, training in ((style, style in ("inception", "vgg")) for style in STYLES)
        }
        for records in others.values():
            self.write("train", records)
            for (style, training), batches in expected.items():
                found = self.batches(3, training, preprocessing=style)
                self.assertAllEqual(found[0], batches[0])
                self.assertAllEqual(found[1], batches[1])

    def test_flowers_are_read_alike(self):
        records = [photos.example(e, i % 5 + 1) for i, e in enumerate(self.encoded)]
        self.write("validation", records)
        _, labels = self.batches(5, False, name="flowers", split="validation")
        self.assertEqual(np.bincount(labels).tolist(), [0, 4, 4, 4, 4, 4])

    def test_styles_of_other_data_sets_and_sizes_beyond_a_style_are_refused(self):
        for options, message in (
            ({"preprocessing": "lenet"}, "`preprocessing` must be one of inception, alexnet, vgg"),
            ({"preprocessing": "vgg", "size": 257}, "`image_size` must be at most 256 .*=257"),
        ):
            with self.assertRaisesRegex(slim_data.DataError, message):
                self.load(True, **options)

    @pytest.mark.slow
    def test_faults_are_named(self):
        good = [photos.example(e, i + 1) for i, e in enumerate(self.encoded)]
        image = self.encoded[8]
        for bad, reason in (
            (photos.example(image, 0), "label is not 1 to 1000: 0"),
            (photos.example(image, 1001), "label is not 1 to 1000: 1001"),
            (photos.example(image[: len(image) // 2]), ""),
            (photos.example(b"no image"), ""),
            (photos.example(b"123", image_format="RAW", size=(2, 2)), ""),
            (photos.example(image, boxes=[(0.5, 0.1, 1.5, 0.2)]), "bbox"),
        ):
            self.write("train", [*good[:8], bad, *good[9:]])
            path = os.path.join(self.folder, "train-00001-of-00003")
            with (
                self.assertRaisesRegex(slim_data.DataError, f"{path}: record 1 .*{reason}"),
                slim_data.locate_corrupt_records("imagenet", self.folder, "train"),
            ):
                self.batches(5)

    def test_validation_accepts_images_of_any_size(self):
        check = corruption.read_checked(slim_data.find_files("imagenet", self.folder, "train"))
        self.assertLen(list(check), NUM_EXAMPLES)
        with self.assertRaisesRegex(slim_data.DataError, "No validation files"):
            validation.validate("imagenet", self.folder)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
