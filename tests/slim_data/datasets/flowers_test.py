"""The archive of flower photos as records."""

import collections
import os
import sys
import tarfile

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets import flowers
from tests.slim_data import flower_photos, samples
from tests.slim_data.cifar10_archives import entry

KINDS = ["daisy", "dandelion", "roses", "sunflowers", "tulips"]


class FlowersTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.raw_dir = samples.new_folder(self)
        self.path = os.path.join(self.raw_dir, "flower_photos.tgz")
        self.photos = flower_photos.photos(52)
        flower_photos.write(self.path, self.photos)

    def convert(self, **arguments):
        folder = samples.new_folder(self)
        files = slim_data.convert(
            "flowers", folder, raw_dir=self.raw_dir, allow_other_archives=True, **arguments
        )
        return folder, files

    def assert_refused(self, *parts):
        folder = samples.new_folder(self)
        with self.assertRaises(slim_data.DataError) as caught:
            arguments = {"raw_dir": self.raw_dir, "source": "files", "shard": False}
            arguments["allow_other_archives"] = True
            slim_data.convert("flowers", folder, **arguments)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))
        self.assertEqual(flower_photos.visible(folder), [])

    def test_records_hold_the_photos_unchanged(self):
        folder, files = self.convert()
        records = [record for paths in files.values() for record in samples.read(paths)]
        found = {record["image/encoded"]: record for record in records}
        self.assertCountEqual(found, self.photos.values())
        for name, photo in self.photos.items():
            record, kind = found[photo], name.split("/")[0]
            self.assertEqual(record["image/class/text"].decode(), kind)
            self.assertEqual(record["image/class/label"], KINDS.index(kind) + 1)
            size = [record[f"image/{key}"] for key in ("height", "width", "channels")]
            self.assertAllEqual(size, tf.io.decode_jpeg(photo, channels=3).shape)
            self.assertEqual(record["image/format"], b"jpg")
        with open(os.path.join(folder, "labels.txt"), encoding="utf-8") as file:
            expected = [f"{i}:{kind}\n" for i, kind in enumerate(KINDS, 1)]
            self.assertEqual(file.readlines(), expected)

    def test_each_split_has_five_files_by_default(self):
        _, files = self.convert()
        for split in ("train", "validation"):
            names = [f"{split}-{i:05d}-of-00005" for i in range(5)]
            self.assertEqual([os.path.basename(path) for path in files[split]], names)
        for arguments, number in (({"train_shards": 3}, 3), ({"shard": False}, 1)):
            _, files = self.convert(**arguments)
            self.assertLen(files["train"], number)
        self.assertEndsWith(files["validation"][0], "validation-flowers.tfrecord")

    def test_validation_gets_350_of_3670_or_the_same_share(self):
        self.assertEqual(flowers.num_validation(3670), 350)
        _, files = self.convert(shard=False)
        sizes = {split: len(samples.read(paths)) for split, paths in files.items()}
        self.assertEqual(sizes, {"train": 47, "validation": 5})

    def test_few_photos_take_one_file(self):
        flower_photos.write(self.path, flower_photos.photos(20))
        with self.assertRaisesRegex(slim_data.DataError, "`shard` must be False: .* 2, than files"):
            self.convert()
        _, files = self.convert(shard=False)
        self.assertEqual(slim_data.count_examples(files["validation"]), 2)

    def test_the_order_is_shuffled_but_always_the_same(self):
        def kinds(split):
            records = flowers.Flowers(self.raw_dir).generate_examples(split)
            parsed = [tf.train.Example.FromString(record) for record in records]
            return [p.features.feature["image/class/label"].int64_list.value[0] for p in parsed]

        order = kinds("train")
        self.assertNotEqual(order, sorted(order))
        counts = collections.Counter(order + kinds("validation"))
        self.assertEqual(sum(counts.values()), 52)
        # The same photos in another order.
        flower_photos.write(self.path, dict(reversed(self.photos.items())))
        self.assertEqual(kinds("train"), order)

    def test_any_part_of_a_split_can_be_read(self):
        builder = flowers.Flowers(self.raw_dir)
        whole = list(builder.generate_examples("train"))
        self.assertLen(whole, builder.num_examples("train"))
        for start, stop in ((0, 47), (3, 5), (20, 47), (47, 47)):
            part = builder.generate_examples("train", start, stop)
            self.assertEqual(list(part), whole[start:stop])

    def test_other_entries_are_ignored_and_nothing_is_extracted(self):
        photo = flower_photos.photo(np.random.default_rng(0))
        more = [
            entry("flower_photos/LICENSE.txt", b"x"),
            entry("flower_photos/._daisy", b"x"),
            entry("flower_photos/daisy/._1.jpg", b"x"),
            entry("flower_photos/../../daisy/1.jpg", photo),
            entry(os.path.join(self.raw_dir, "flower_photos/daisy/1.jpg"), photo),
            entry("flower_photos/weeds/1.jpg", photo),
        ]
        flower_photos.write(self.path, self.photos, more)
        _, files = self.convert(shard=False)
        self.assertLen(sum((samples.read(paths) for paths in files.values()), []), 52)
        self.assertEqual(os.listdir(self.raw_dir), ["flower_photos.tgz"])

    def test_links_bombs_and_damaged_photos_are_refused(self):
        name = "flower_photos/daisy/x.jpg"
        whole = next(iter(self.photos.values()))
        for bad, part in (
            (entry(name, kind=tarfile.SYMTYPE, target="/etc/passwd"), "not a regular file"),
            (entry(name, whole[: len(whole) // 2]), "cannot be decoded"),
            (entry(name, tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy()), "is not a JPEG"),
            (entry(name, b""), "Received: 0"),
            (entry(name, bytes(2**24 + 1)), f"Received: {2**24 + 1}"),
        ):
            flower_photos.write(self.path, self.photos, [bad])
            self.assert_refused(self.path, name, part)

    def test_archives_without_photos_are_refused(self):
        flower_photos.write(self.path, {})
        self.assert_refused(self.path, "at least 6", "Received: 0")
        os.remove(self.path)
        self.assert_refused("`raw_dir`", "flower_photos.tgz", self.raw_dir)

    def test_damaged_archives_are_refused(self):
        samples.flip_bit(self.path, os.path.getsize(self.path) - 6)
        self.assert_refused(self.path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
