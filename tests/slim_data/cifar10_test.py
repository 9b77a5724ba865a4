"""CIFAR-10's official archive, as records and as batches."""

import gzip
import io
import os
import sys
import tarfile

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data import cifar10, distortions, validation
from tests.slim_data import samples

NAMES = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in (3, 1, 2, 5, 4)]
NAMES += ["cifar-10-batches-bin/test_batch.bin"]


def batch(seed, size=4):
    """Returns (images [n, 3, 32, 32], labels [n]), random."""
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (size, 3, 32, 32), np.uint8)
    return images, generator.integers(0, 10, size).astype(np.uint8)


def encoded(images, labels):
    rows = zip(labels, images, strict=True)
    return b"".join(bytes([label]) + image.tobytes() for label, image in rows)


def entry(name, data=b"", kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, target
    return info, data


class Cifar10Test(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.raw_dir = samples.new_folder(self)
        self.path = os.path.join(self.raw_dir, "cifar-10-binary.tar.gz")
        self.batches = {name: batch(i) for i, name in enumerate(NAMES)}
        self.entries = {name: entry(name, encoded(*b)) for name, b in self.batches.items()}
        self.write()

    def write(self, *more):
        with tarfile.open(self.path, "w:gz", compresslevel=1) as archive:
            for info, data in [*more, *self.entries.values()]:
                archive.addfile(info, io.BytesIO(data))

    def convert(self):
        folder = samples.new_folder(self)
        return folder, slim_data.convert(
            "cifar10", folder, raw_dir=self.raw_dir, shard=True, train_shards=3
        )

    def assert_refused(self, *parts):
        folder = samples.new_folder(self)
        with self.assertRaises(slim_data.DataError) as caught:
            slim_data.convert("cifar10", folder, raw_dir=self.raw_dir)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))
        self.assertEqual(os.listdir(folder), [])

    def test_records_hold_the_source_exactly_in_the_order_of_the_batches(self):
        folder, files = self.convert()
        for split, names in (("train", sorted(NAMES[:5])), ("test", NAMES[5:])):
            images = np.concatenate([self.batches[name][0] for name in names])
            labels = np.concatenate([self.batches[name][1] for name in names])
            records = samples.read(files[split])
            self.assertLen(records, len(labels))
            for record, image, label in zip(records, images, labels, strict=True):
                self.assertAllEqual(record["pixels"], np.moveaxis(image, 0, -1))
                self.assertEqual(record["image/class/label"], label)
                self.assertEqual(record["image/class/text"].decode(), cifar10.LABELS[label])
                self.assertEqual(record["image/channels"], 3)
        found = validation.validate("cifar10", folder)
        self.assertEqual([sum(c.values()) for c in found["train"].values()], [6, 7, 7])

    def test_nothing_is_extracted(self):
        outside = os.path.join(self.raw_dir, "outside")
        self.write(
            entry("../outside", b"x"),
            entry(outside, b"x"),
            entry("link", kind=tarfile.SYMTYPE, target="/etc/passwd"),
        )
        folder, _ = self.convert()
        self.assertEqual(os.listdir(self.raw_dir), ["cifar-10-binary.tar.gz"])
        self.assertLen(os.listdir(folder), 5)

    def test_links_in_place_of_files_are_refused(self):
        self.entries[NAMES[1]] = entry(NAMES[1], kind=tarfile.SYMTYPE, target="/etc/passwd")
        self.write()
        self.assert_refused(self.path, NAMES[1], "no regular file")

    def test_missing_files_are_named(self):
        del self.entries[NAMES[5]]
        self.write()
        self.assert_refused(self.path, "lacks", NAMES[5])
        os.remove(self.path)
        self.assert_refused("`raw_dir`", "cifar-10-binary.tar.gz", self.raw_dir)

    def test_wrong_sizes_and_labels_are_named(self):
        images, labels = self.batches[NAMES[2]]
        for data in (b"", encoded(images, labels)[:-1]):
            self.entries[NAMES[2]] = entry(NAMES[2], data)
            self.write()
            self.assert_refused(NAMES[2], "3073", f"Received: {len(data)}")
        wrong = encoded(images, np.array([0, 1, 10, 2], np.uint8))
        self.entries[NAMES[2]] = entry(NAMES[2], wrong)
        self.write()
        self.assert_refused(NAMES[2], "record 2", "label is not 0 to 9: 10")

    def test_damaged_archives_are_refused(self):
        with open(self.path, "rb") as file:
            whole = file.read()
        flipped = whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:]
        for data in (whole[:-9], whole[: len(whole) // 2], flipped, b"", b"no archive"):
            with open(self.path, "wb") as file:
                file.write(data)
            self.assert_refused(self.path)
        with open(self.path, "wb") as file:
            file.write(gzip.compress(b"no archive"))
        self.assert_refused(self.path)


class BatchesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.images, labels = batch(0, 11)
        self.images = np.moveaxis(self.images, 1, -1)
        for split in ("train", "test"):
            records = [
                samples.example(tf.io.encode_png(image).numpy(), label)
                for image, label in zip(self.images, labels, strict=True)
            ]
            samples.write_records(os.path.join(self.folder, f"{split}-cifar10.tfrecord"), records)

    def batches(self, num_batches, training=True, **arguments):
        stream = slim_data.load("cifar10", self.folder, "train", 4, 24, training, **arguments)
        return [images.numpy() for images, _ in stream.take(num_batches)]

    def test_evaluation_takes_the_centre_and_standardizes(self):
        found = np.concatenate(self.batches(3, training=False))
        centre = self.images[:, 4:28, 4:28].astype(np.float64) / 255
        mean = centre.mean((1, 2, 3), keepdims=True)
        std = centre.std((1, 2, 3), keepdims=True)
        self.assertAllClose(found, (centre - mean) / np.maximum(std, 24**-1 / 3**0.5), atol=1e-4)

    def test_training_images_differ_by_epoch_and_are_standardized(self):
        found = np.concatenate(self.batches(6))
        self.assertLen(np.unique(found.reshape(24, -1), axis=0), 24)
        self.assertAllClose(found.mean((1, 2, 3)), np.zeros(24), atol=1e-3)
        self.assertAllClose(found.std((1, 2, 3)), np.ones(24), atol=1e-3)

    def test_a_stream_started_at_a_step_goes_on_with_the_same_images(self):
        whole = self.batches(9)
        for step in (1, 2, 3, 6):
            rest = self.batches(9 - step, start_step=step, num_parallel_calls=2)
            self.assertAllEqual(np.stack(rest), np.stack(whole[step:]))
        self.assertNotAllClose(self.batches(1, seed=2)[0], whole[0])

    def test_a_damaged_record_is_named_in_training(self):
        path = os.path.join(self.folder, "train-cifar10.tfrecord")
        records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
        samples.write_records(path, [*records[:7], samples.example(b"no image", 1), *records[8:]])
        with (
            self.assertRaisesRegex(slim_data.DataError, "cifar10.tfrecord: record 7 "),
            slim_data.explained("cifar10", self.folder, "train"),
        ):
            self.batches(3)

    def test_distortions_are_crops_flips_brightness_and_contrast(self):
        size, image = 30, self.images[0]
        crops = np.lib.stride_tricks.sliding_window_view(image / 255, (size, size), (0, 1))
        crops = np.moveaxis(crops.reshape(-1, 3, size, size), 1, -1)
        crops = np.concatenate([crops, crops[:, :, ::-1]])
        shape = crops - crops.mean((1, 2), keepdims=True)
        seen, shifts, gains = set(), [], []
        for i in range(150):
            found = distortions.cifar10_image(image, size, tf.constant([1, i], tf.int64)).numpy()
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


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
