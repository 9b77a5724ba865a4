"""ImageNet as tensorflow-datasets prepares it from the official archives, as records."""

import os
import sys

import pytest
import tensorflow as tf

import slim_data
from slim_data.tfrecord import shards
from tests.slim_data import ilsvrc, pictures, programs, samples

tfds = pytest.importorskip("tensorflow_datasets")


class ImagenetTfdsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = samples.new_folder(self)
        self.manual = os.path.join(self.root, "tfds", "downloads", "manual")
        builder = tfds.builder("imagenet2012", data_dir=self.path("tfds"))
        self.synsets = builder.info.features["label"].names
        self.assertLen(self.synsets, 1000)
        self.assertEqual(self.synsets, sorted(self.synsets))
        self.write_lists(self.synsets)

    def write_lists(self, synsets):
        pictures.write(self.path("synsets.txt"), "\n".join(synsets))
        lines = "".join(f"{synset}\tname of {synset}\n" for synset in synsets)
        pictures.write(self.path("meta.txt"), lines)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def write_archives(self):
        # tensorflow-datasets converts certain files to RGB by their names, which are absent here.
        kept = ("_1.JPEG", "_22.JPEG", "_29.JPEG", "_50.JPEG")
        self.images = {
            synset: {name: data for name, data in images.items() if name.endswith(kept)}
            for synset, images in ilsvrc.train_images(8).items()
        }
        self.validation = ilsvrc.validation_images()
        train, validation = ilsvrc.train_archive(self.images), pictures.tar(self.validation)
        pictures.write(os.path.join(self.manual, ilsvrc.TRAIN), train)
        pictures.write(os.path.join(self.manual, ilsvrc.VALIDATION), validation)

    def build(self, *arguments):
        return programs.call(
            *("build_imagenet_data", "--tfds_dir", self.path("tfds")),
            *("--labels_file", self.path("synsets.txt")),
            *("--imagenet_metadata_file", self.path("meta.txt")),
            *("--output_directory", self.path("out")),
            *("--train_shards", 2, "--validation_shards", 1),
            *arguments,
        )

    def records(self, split):
        paths = shards.find_shards(self.path("out"), split)
        return list(tf.data.TFRecordDataset(paths).map(ilsvrc.parse).as_numpy_iterator())

    def test_records_hold_the_images_unchanged(self):
        self.write_archives()
        done = self.build()
        self.assertEqual(done.status, 0, done.stderr)
        source = {name: data for images in self.images.values() for name, data in images.items()}
        records = self.records("train")
        self.assertCountEqual([r["image/filename"].decode() for r in records], source)
        for record in records:
            name = record["image/filename"].decode()
            synset = name.partition("_")[0]
            self.assertEqual(record["image/encoded"], source[name])
            self.assertEqual(record["image/format"], b"JPEG")
            self.assertEqual(record["image/class/synset"].decode(), synset)
            self.assertEqual(record["image/class/label"], self.synsets.index(synset) + 1)
            self.assertEqual(record["image/class/text"].decode(), f"name of {synset}")
            size = [record[f"image/{side}"] for side in ("height", "width", "channels")]
            self.assertEqual(size, list(pictures.decode(source[name]).shape))
            self.assertEmpty(record["image/object/bbox/xmin"])
            self.assertEmpty(record["image/object/bbox/label"])
        records = {r["image/filename"].decode(): r for r in self.records("validation")}
        self.assertCountEqual(records, self.validation)
        for name, data in self.validation.items():
            self.assertEqual(records[name]["image/encoded"], data)
        first = records["ILSVRC2012_val_00000001.JPEG"]
        self.assertEqual(first["image/class/synset"], b"n01751748")  # a sea snake
        files = shards.find_shards(self.path("out"), "train")
        self.assertEqual(slim_data.verify(files, "imagenet"), len(source))
        # A second call finds all files; other options make another data set.
        self.assertEqual(self.build().status, 0)
        self.assertIn("another conversion (raw_pixel", self.build("--raw_pixel").stderr)

    def test_classes_that_are_not_in_the_labels_file_are_named(self):
        self.write_archives()
        self.write_lists(ilsvrc.SYNSETS)
        done = self.build()
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        self.assertRegex(done.stderr, r"validation: its class is not in the labels file: n\d{8}")

    def test_missing_archives_are_one_line(self):
        done = self.build()
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        self.assertIn("cannot prepare imagenet2012", done.stderr)
        self.assertIn(self.manual, done.stderr)

    def test_two_sources_are_refused(self):
        done = self.build("--train_directory", "x")
        self.assertIn("`tfds_dir` replaces --train_directory", done.stderr)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
