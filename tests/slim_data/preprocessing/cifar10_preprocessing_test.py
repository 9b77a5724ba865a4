"""Batches of CIFAR-10: their random and their deterministic parts."""

import os
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.preprocessing import cifar_resnet, cifarnet
from tests.slim_data import samples

MEAN = np.array([0.4914, 0.4822, 0.4465])
DEVIATION = np.array([0.2470, 0.2435, 0.2616])


def draws(num_images, num_random_values, seed=3):
    return np.random.default_rng(seed).random((num_images, num_random_values), np.float32)


class BatchesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        generator = np.random.default_rng(0)
        self.images = generator.integers(0, 256, (11, 32, 32, 3), np.uint8)
        records = [
            samples.example(tf.io.encode_png(image).numpy(), i % 10)
            for i, image in enumerate(self.images)
        ]
        self.path = os.path.join(self.folder, "train-cifar10.tfrecord")
        samples.write_records(self.path, records)

    def batches(self, num_batches, training=True, size=24, batch_size=4, **arguments):
        arguments.setdefault("repeat", training)
        stream = slim_data.load(
            "cifar10", self.folder, "train", batch_size, size, training, **arguments
        )
        return [images.numpy() for images, _ in stream.take(num_batches)]

    def test_evaluation_takes_the_centre_and_standardizes(self):
        found = np.concatenate(self.batches(3, training=False))
        centre = self.images[:, 4:28, 4:28].astype(np.float64) / 255
        mean = centre.mean((1, 2, 3), keepdims=True)
        std = centre.std((1, 2, 3), keepdims=True)
        self.assertAllClose(found, (centre - mean) / np.maximum(std, 24**-1 / 3**0.5), atol=1e-4)

    def test_evaluation_of_residual_networks_normalizes_channels(self):
        for size, images in ((32, self.images), (28, self.images[:, 2:30, 2:30])):
            found = self.batches(3, training=False, size=size, preprocessing="resnet")
            expected = (images / 255 - MEAN) / DEVIATION
            self.assertAllClose(np.concatenate(found), expected, atol=1e-5)

    def test_training_images_differ_by_epoch_and_are_standardized(self):
        found = np.concatenate(self.batches(6))
        self.assertLen(np.unique(found.reshape(24, -1), axis=0), 24)
        self.assertAllClose(found.mean((1, 2, 3)), np.zeros(24), atol=1e-3)
        self.assertAllClose(found.std((1, 2, 3)), np.ones(24), atol=1e-3)

    @pytest.mark.slow
    def test_a_stream_started_at_a_step_has_the_same_images(self):
        for style in ("cifarnet", "resnet"):
            whole = self.batches(7, preprocessing=style)
            for step in (2, 3):
                rest = self.batches(
                    7 - step, start_step=step, num_parallel_calls=2, preprocessing=style
                )
                self.assertAllEqual(np.stack(rest), np.stack(whole[step:]))
        self.assertNotAllClose(self.batches(1, seed=2)[0], whole[0])

    @pytest.mark.slow
    def test_images_do_not_depend_on_the_size_of_batches(self):
        whole = np.concatenate(self.batches(150))
        for batch_size in (1, 7, 300):
            found = np.concatenate(self.batches(600 // batch_size, batch_size=batch_size))
            self.assertAllClose(found[:595], whole[: len(found)][:595], atol=1e-5)

    def test_pipelines_draw_different_numbers(self):
        image = tf.io.encode_png(self.images[0]).numpy()
        samples.write_records(self.path, [samples.example(image, 1)] * 4)
        first, second = (
            self.batches(2, batch_size=2, num_input_pipelines=2, input_pipeline_id=i)
            for i in range(2)
        )
        self.assertNotAllClose(first, second)

    def test_a_damaged_record_is_named_in_training(self):
        records = list(tf.data.TFRecordDataset(self.path).as_numpy_iterator())
        small = samples.example(tf.io.encode_png(self.images[0, :31]).numpy(), 1)
        for bad in (samples.example(b"no image", 1), small):
            samples.write_records(self.path, [*records[:7], bad, *records[8:]])
            with (
                self.assertRaisesRegex(slim_data.DataError, "cifar10.tfrecord: record 7 "),
                slim_data.locate_corrupt_records("cifar10", self.folder, "train"),
            ):
                self.batches(3)


class DistortionsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.image = np.random.default_rng(1).integers(0, 256, (32, 32, 3), np.uint8)

    def test_augmentation_is_crops_flips_brightness_and_contrast(self):
        size = 30
        crops = np.lib.stride_tricks.sliding_window_view(self.image / 255, (size, size), (0, 1))
        crops = np.moveaxis(crops.reshape(-1, 3, size, size), 1, -1)
        crops = np.concatenate([crops, crops[:, :, ::-1]])
        shape = crops - crops.mean((1, 2), keepdims=True)
        seen, shifts, gains = set(), [], []
        images = np.stack([self.image] * 150)
        for found in cifarnet.augment_pixels(images, size, draws(150, 5)).numpy():
            centred = found - found.mean((0, 1))
            gain = (shape * centred).sum((1, 2, 3)) / (shape**2).sum((1, 2, 3))
            lack = np.abs(shape * gain[:, None, None, None] - centred).max((1, 2, 3))
            best = int(lack.argmin())
            self.assertLess(lack[best], 1e-5)
            seen.add(best)
            gains.append(gain[best])
            shifts.append((found - crops[best]).mean())
        self.assertLen(seen, 18)
        for values, low, high in ((gains, 0.2, 1.8), (shifts, -63 / 255, 63 / 255)):
            self.assertAllInRange(values, low - 1e-5, high + 1e-5)
            self.assertAllClose(np.mean(values), (low + high) / 2, atol=(high - low) / 10)
            self.assertGreater(np.ptp(values), 0.9 * (high - low))

    def test_residual_networks_see_shifts_by_four_pixels_and_mirrors(self):
        padded = np.pad(self.image, [(4, 4), (4, 4), (0, 0)])
        places = {}
        for top in range(9):
            for left in range(9):
                part = padded[top : top + 32, left : left + 32]
                places[part.tobytes()] = top, left, False
                places[part[:, ::-1].tobytes()] = top, left, True
        images = np.stack([self.image] * 400)
        found = cifar_resnet.augment(images, 32, draws(400, 3)).numpy()
        pixels = np.rint((found * DEVIATION + MEAN) * 255).astype(np.uint8)
        self.assertAllClose((pixels / 255 - MEAN) / DEVIATION, found, atol=1e-5)
        seen = np.array([places[image.tobytes()] for image in pixels])
        for i, values in enumerate((range(9), range(9), range(2))):
            count = np.bincount(seen[:, i], minlength=len(values))
            expected = 400 / len(values)
            self.assertAllInRange(count, expected - 5 * expected**0.5, expected + 5 * expected**0.5)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
