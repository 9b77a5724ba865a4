"""Folders of images as TFRecords: all image formats, order, and mistakes."""

import os
import random
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets.sources import image_folders
from slim_data.tfrecord import shards, writing
from tests.slim_data import pictures, programs, samples

LABELS = ("roses", "daisy", "tulips")
MAKES = {
    "a.jpg": ("JPEG", "RGB"),
    "b.JPEG": ("PNG", "RGB"),  # a JPEG by its name
    "c.png": ("JPEG", "RGB"),  # a PNG by its name
    "d.jpg": ("JPEG", "CMYK"),
    "e.jpg": ("JPEG", "L"),
    "f.png": ("PNG", "RGBA"),
    "g.png": ("PNG", "P"),
    "h.png": ("PNG", "L"),
}


def parse(record):
    return tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/format": tf.io.FixedLenFeature([], tf.string),
            "image/filename": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64),
            "image/class/text": tf.io.FixedLenFeature([], tf.string),
            "image/height": tf.io.FixedLenFeature([], tf.int64),
            "image/width": tf.io.FixedLenFeature([], tf.int64),
            "image/channels": tf.io.FixedLenFeature([], tf.int64),
            "image/colorspace": tf.io.FixedLenFeature([], tf.string),
        },
    )


class BuildImageDataTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = samples.new_folder(self)
        self.output = self.path("output")
        self.labels_file = self.path("labels.txt")
        pictures.write(self.labels_file, "".join(f"{label}\n" for label in LABELS))
        self.files = {}
        for split in ("train", "validation"):
            for i, label in enumerate(LABELS):
                for j, (name, make) in enumerate(MAKES.items()):
                    pixels = pictures.pixels(40 + j, 30 + i, seed=8 * i + j)
                    data = pictures.encode(pixels, *make)
                    self.add(split, f"{label}/{name}", data)
        pictures.write(self.path("train", "LICENSE.txt"), "not a class")
        pictures.write(self.path("train", "daisy", ".hidden"), "not an image")

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def add(self, split, file, data):
        self.files[split, file] = data
        pictures.write(self.path(split, file), data)

    def build(self, *arguments, **flags):
        flags = {
            "train_directory": self.path("train"),
            "validation_directory": self.path("validation"),
            "output_directory": self.output,
            "labels_file": self.labels_file,
            **flags,
        }
        pairs = [part for flag, value in flags.items() for part in (f"--{flag}", value)]
        return programs.call("build_image_data", *pairs, *arguments)

    def read(self, split):
        paths = shards.find_shards(self.output, split)
        return list(tf.data.TFRecordDataset(paths).map(parse).as_numpy_iterator())

    def assert_refused(self, *parts, **flags):
        done = self.build(**flags)
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_records_hold_images_and_labels(self):
        done = self.build()
        self.assertEqual(done.status, 0, done.stderr)
        for split in ("train", "validation"):
            records = self.read(split)
            self.assertLen(records, 24)
            seen = set()
            for record in records:
                label = record["image/class/text"].decode()
                name = record["image/filename"].decode()
                source = self.files[split, f"{label}/{name}"]
                seen.add((label, name))
                self.assertEqual(record["image/class/label"], LABELS.index(label) + 1)
                self.assertEqual(record["image/format"], b"JPEG")
                self.assertEqual(record["image/colorspace"], b"RGB")
                expected = pictures.decode(source)
                size = [record[f"image/{side}"] for side in ("height", "width", "channels")]
                self.assertEqual(size, list(expected.shape))
                if MAKES[name] in (("JPEG", "RGB"), ("JPEG", "L")):
                    self.assertEqual(record["image/encoded"], source)
                else:
                    self.assertEqual(record["image/encoded"][:3], b"\xff\xd8\xff")
                    pixels = pictures.decode(record["image/encoded"])
                    self.assertEqual(pixels.shape, expected.shape)
                    self.assertLess(np.abs(pixels - expected).mean(), 2)
            self.assertLen(seen, 24)

    def test_last_line_of_each_set_counts_its_images(self):
        lines = self.build().stdout.splitlines()
        self.assertLen(lines, 4)
        for line, split in ((lines[0], "validation"), (lines[2], "train")):
            names = f"{split}-00000-of-00002 to {split}-00001-of-00002"
            self.assertEqual(line, f"Wrote 24 {split} images to {names}")
        for line in (lines[1], lines[3]):
            self.assertRegex(
                line,
                r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: "
                r"Finished writing all 24 images in data set\.$",
            )

    def test_order_is_shuffled_and_always_the_same(self):
        self.build()
        found = [
            f"{r['image/class/text'].decode()}/{r['image/filename'].decode()}"
            for r in self.read("train")
        ]
        files = [f"{label}/{name}" for label in LABELS for name in sorted(MAKES)]
        place = random.Random(12345)
        places = [place.random() for _ in files]
        self.assertEqual(found, [file for _, file in sorted(zip(places, files, strict=True))])
        self.assertNotEqual(found, files)

    def test_shards_may_be_uneven(self):
        done = self.build(train_shards=7, validation_shards=1, num_threads=5)
        self.assertEqual(done.status, 0, done.stderr)
        names = shards.shard_names("train", 7)
        sizes = [slim_data.count_examples([os.path.join(self.output, n)]) for n in names]
        self.assertEqual(sizes, [3, 3, 4, 3, 4, 3, 4])

    def test_there_are_no_more_files_than_images(self):
        done = self.build(train_shards=128, validation_shards=24, num_threads=8)
        self.assertEqual(done.status, 0, done.stderr)
        self.assertIn("train: 24 files instead of 128, one per image\n", done.stdout)
        self.assertNotIn("validation: ", done.stdout)
        for split in ("train", "validation"):
            self.assertLen(self.read(split), 24)
            self.assertLen(shards.find_shards(self.output, split), 24)
        again = self.build(train_shards=128, validation_shards=24)
        self.assertEqual(again.status, 0, again.stderr)

    @pytest.mark.slow
    def test_two_processes_write_the_same_bytes(self):
        numbers = {"train_shards": 5, "validation_shards": 1}
        self.assertEqual(self.build(num_threads=1, **numbers).status, 0)
        before = samples.contents(self.output)
        self.output = self.path("other")
        with mock.patch.object(writing, "EXAMPLES_PER_PROCESS", 10):
            done = self.build(num_threads=2, **numbers)
        self.assertEqual(done.status, 0, done.stderr)
        self.assertEqual(samples.contents(self.output), before)

    def test_finished_shards_are_kept(self):
        self.build()
        path = os.path.join(self.output, "train-00001-of-00002")
        before = os.stat(path).st_mtime_ns
        os.remove(os.path.join(self.output, "train-00000-of-00002"))
        self.assertEqual(self.build().status, 0)
        self.assertEqual(os.stat(path).st_mtime_ns, before)
        self.assertLen(self.read("train"), 24)

    def test_other_images_in_the_folder_are_refused(self):
        self.build()
        before = samples.contents(self.output)
        self.add("train", "roses/new.jpg", pictures.encode(pictures.pixels()))
        self.assert_refused("train files of another conversion", self.output)
        pictures.write(self.labels_file, "daisy\nroses\ntulips\n")
        self.assert_refused("validation files of another conversion")
        self.assertEqual(samples.contents(self.output), before)

    def test_unreadable_images_are_named(self):
        whole = self.files["train", "roses/a.jpg"]
        for data, reason in (
            (whole[: len(whole) // 2], "damaged"),
            (b"GIF89a" + bytes(99), "damaged"),
            (b"", "no JPEG, PNG, GIF, WebP or BMP image, or damaged"),
        ):
            pictures.write(self.path("train", "roses", "a.jpg"), data)
            self.output = samples.new_folder(self)
            self.assert_refused(self.path("train", "roses", "a.jpg"), reason)
            for name in os.listdir(self.output):
                if name.startswith("train-"):
                    slim_data.verify([os.path.join(self.output, name)])

    def damage(self):
        """Damages images of both splits; returns their paths."""
        bad = []
        for split, file in (
            ("validation", "tulips/g.png"),
            ("train", "roses/a.jpg"),
            ("train", "daisy/c.png"),
            ("train", "tulips/h.png"),
        ):
            bad.append(self.path(split, file))
            pictures.write(bad[-1], self.files[split, file][:40])
        return bad

    def test_all_unusable_images_are_reported_at_once(self):
        os.makedirs(self.path("train", "roses", "folder.jpg"))
        bad = [*self.damage(), self.path("train", "roses", "folder.jpg")]
        done = self.build(train_shards=5)
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        self.assertIn("; and 4 more, as told above", done.stderr)
        told = [line for line in done.stdout.splitlines() if line.startswith(self.root)]
        self.assertCountEqual([line.partition(": ")[0] for line in told], bad)
        self.assertNotIn("Finished", done.stdout)

    @pytest.mark.long
    def test_processes_report_all_unusable_images(self):
        self.damage()
        with mock.patch.object(writing, "EXAMPLES_PER_PROCESS", 5):
            done = self.build(num_threads=4, train_shards=7)
        self.assertIn("; and 3 more, as told above", done.stderr)

    def test_the_command_succeeds_once_the_last_bad_image_is_removed(self):
        numbers = {"train_shards": 128, "validation_shards": 5}
        for path in self.damage():
            done = self.build(**numbers)
            self.assertEqual(done.status, 2)
            os.remove(path)
        done = self.build(**numbers)
        self.assertEqual(done.status, 0, done.stderr)
        self.assertRegex(done.stdout, r"train: removed \d+ files, unfinished and of other images")
        self.assertLen(self.read("train"), 21)
        self.assertLen(self.read("validation"), 23)
        # The result is the same as without the bad images.
        found, self.output = samples.contents(self.output), self.path("other")
        self.assertEqual(self.build(**numbers).status, 0)
        self.assertEqual(samples.contents(self.output), found)

    def test_unfinished_files_of_other_classes_are_not_replaced(self):
        # The last image to be written.
        bad = self.path(
            "train", image_folders.find_images(self.path("train"), LABELS, is_train=True)[-1]
        )
        pictures.write(bad, "no image")
        self.assertEqual(self.build(train_shards=9).status, 2)
        before = samples.contents(self.output)
        self.assertContainsSubset(["train-00000-of-00009"], before)
        os.remove(bad)
        pictures.write(self.labels_file, "daisy\nroses\ntulips\n")
        self.assert_refused("files of another conversion", train_shards=9)
        self.assertEqual(samples.contents(self.output), before)

    def test_folders_and_labels_that_do_not_match_are_named(self):
        pictures.write(self.path("train", "cats", "a.jpg"), b"")
        self.assert_refused(self.path("train"), "not in the labels file: cats")
        pictures.write(self.labels_file, "roses\ndaisy\ntulips\ncats\n")
        self.assert_refused(self.path("validation"), "lacks a folder of the labels file: cats")
        self.assertFalse(os.path.exists(self.output))

    def test_labels_files_with_mistakes_are_refused(self):
        for text, part in (
            ("roses\ndaisy\nroses\n", "class 3: 'roses'"),
            ("../daisy\n", "class 1: '../daisy'"),
            ("roses\n/etc\n", "class 2: '/etc'"),
            ("..\n", "class 1: '..'"),
            ("a\0b\n", r"class 1: 'a\x00b'"),
            ("\x1b[2J/\n", r"class 1: '\x1b[2J/'"),
            ("\n", "without any"),
            (b"\xff\xfe", "text file"),
        ):
            pictures.write(self.labels_file, text)
            self.assert_refused("`labels_file`", part)
        self.assert_refused("`labels_file`", "No such file", labels_file=self.path("absent"))

    def test_wrong_arguments_are_refused(self):
        self.assert_refused("`validation_shards` must be a positive", validation_shards=0)
        self.assert_refused("`num_threads` must be a positive integer", num_threads=-1)
        self.assert_refused("num_threads", "'two'", num_threads="two")
        self.assert_refused(self.path("no"), "No such file", train_directory=self.path("no"))
        self.assert_refused("`output_directory`", output_directory=self.labels_file)
        self.assert_refused("--train_directory", train_directory="")
        self.assertFalse(os.path.exists(self.output))

    def test_folders_without_images_are_refused(self):
        empty = self.path("empty")
        for label in LABELS:
            os.makedirs(os.path.join(empty, label))
        self.assert_refused(empty, "holds no images", validation_directory=empty)

    def test_each_class_must_have_images_to_train_but_none_to_validate(self):
        for split in ("validation", "train"):
            for name in os.listdir(self.path(split, LABELS[0])):
                os.remove(self.path(split, LABELS[0], name))
            if split == "validation":
                self.assertEqual(self.build().status, 0)
        self.assert_refused(f"train/{LABELS[0]} holds no images *")

    def test_the_program_runs_as_a_process(self):
        done = samples.run("slim_data.build_image_data", "--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("train_directory", "output_directory", "num_threads", "labels_file"):
            self.assertIn(f"--{flag}", done.stdout)

    def test_the_seed_equals_the_originals(self):
        self.assertEqual(image_folders.SEED, 12345)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
