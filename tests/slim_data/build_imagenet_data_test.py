"""ImageNet's folders, lists and boxes as TFRecords."""

import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from slim_data.tfrecord import shards
from tests.slim_data import ilsvrc, pictures, programs, samples

SYNSETS = list(pictures.SYNSETS)


class BuildImagenetDataTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = samples.new_folder(self)
        self.files = {}
        for split in ("train", "validation"):
            for i, synset in enumerate(SYNSETS):
                for j in range(3):
                    pixels = pictures.pixels(60 + 10 * i, 50 + 10 * j, seed=i + 10 * j)
                    kind, mode = (("JPEG", "RGB"), ("PNG", "RGB"), ("JPEG", "CMYK"))[j]
                    self.files[f"{synset}_{split}{j}.JPEG"] = pictures.encode(pixels, kind, mode)
                    path = self.path(split, synset, f"{synset}_{split}{j}.JPEG")
                    pictures.write(path, self.files[os.path.basename(path)])
        pictures.write(self.path("train", SYNSETS[0], "notes.txt"), "no image")
        names = {"n00000001": "entity", **pictures.SYNSETS}
        pictures.write(self.path("synsets.txt"), "\n".join(SYNSETS))
        pictures.write(self.path("meta.txt"), "".join(f"{s}\t{n}\n" for s, n in names.items()))
        self.boxed = f"{SYNSETS[1]}_train0.JPEG"
        lines = f"{self.boxed},0.1,0.2,0.3,0.4\nother.JPEG,0,0,1,1\n{self.boxed},0,0.5,1,1\n"
        pictures.write(self.path("boxes.csv"), lines)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def build(self, output, *arguments, **flags):
        flags = {
            "train_directory": self.path("train"),
            "validation_directory": self.path("validation"),
            "output_directory": self.path(output),
            "labels_file": self.path("synsets.txt"),
            "imagenet_metadata_file": self.path("meta.txt"),
            "bounding_box_file": self.path("boxes.csv"),
            "train_shards": 4,
            "validation_shards": 1,
            **flags,
        }
        pairs = [part for flag, value in flags.items() for part in (f"--{flag}", value)]
        return programs.call("build_imagenet_data", *pairs, *arguments)

    def records(self, output, split="train"):
        paths = shards.find_shards(self.path(output), split)
        return list(tf.data.TFRecordDataset(paths).map(ilsvrc.parse).as_numpy_iterator())

    def assert_refused(self, *parts, **flags):
        done = self.build("refused", **flags)
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertFalse(os.path.exists(self.path("refused")))

    def test_records_hold_images_classes_and_boxes(self):
        done = self.build("out")
        self.assertEqual(done.status, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "Read 3 bounding boxes of 2 images")
        self.assertRegex(
            lines[-1], r"^[\d -]+[\d:.]+: Finished writing all 9 images in data set\.$"
        )
        for split in ("train", "validation"):
            records = self.records("out", split)
            self.assertLen({record["image/filename"] for record in records}, 9)
            for record in records:
                name = record["image/filename"].decode()
                synset = record["image/class/synset"].decode()
                source = self.files[name]
                self.assertEqual(name.partition("_")[0], synset)
                self.assertEqual(record["image/class/label"], SYNSETS.index(synset) + 1)
                self.assertEqual(record["image/class/text"].decode(), pictures.SYNSETS[synset])
                self.assertEqual(record["image/format"], b"JPEG")
                self.assertEqual(record["image/colorspace"], b"RGB")
                expected = pictures.decode(source)
                size = [record[f"image/{side}"] for side in ("height", "width", "channels")]
                self.assertEqual(size, list(expected.shape))
                if name.endswith("0.JPEG"):
                    self.assertEqual(record["image/encoded"], source)
                pixels = pictures.decode(record["image/encoded"])
                self.assertLess(np.abs(pixels - expected).mean(), 2)
                boxes = [record[f"image/object/bbox/{c}"] for c in ("xmin", "ymin", "xmax", "ymax")]
                has_boxes = name == self.boxed
                expected = [[0.1, 0], [0.2, 0.5], [0.3, 1], [0.4, 1]] if has_boxes else [[]] * 4
                self.assertAllClose(boxes, expected)
                labels = [SYNSETS.index(synset) + 1] * 2 if has_boxes else []
                self.assertEqual(record["image/object/bbox/label"].tolist(), labels)

    def test_raw_pixels_equal_the_image(self):
        self.assertEqual(self.build("raw", "--raw_pixel", "True").status, 0)
        for record in self.records("raw"):
            name = record["image/filename"].decode()
            size = [record[f"image/{side}"] for side in ("height", "width", "channels")]
            pixels = np.frombuffer(record["image/encoded"], np.uint8).reshape(size)
            self.assertEqual(record["image/format"], b"RAW")
            expected = pictures.decode(self.files[name])
            self.assertEqual(pixels.shape, expected.shape)
            self.assertLess(np.abs(pixels - expected).mean(), 2)
            if name.endswith("1.JPEG"):  # lossless
                self.assertAllEqual(pixels, expected)

    def test_raw_pixels_are_squeezed_to_a_square(self):
        done = self.build("square", "--raw_pixel=true", "--resize_dimen", "16")
        self.assertEqual(done.status, 0, done.stderr)
        for record in self.records("square"):
            self.assertEqual([record["image/height"], record["image/width"]], [16, 16])
            pixels = np.frombuffer(record["image/encoded"], np.uint8).reshape(16, 16, 3)
            expected = pictures.decode(self.files[record["image/filename"].decode()])
            expected = pictures.squeeze(expected, 16)
            self.assertLess(np.abs(pixels - expected).mean(), 2)

    def test_other_options_in_the_same_folder_are_refused(self):
        self.assertEqual(self.build("out", "--noraw_pixel").status, 0)
        done = self.build("out", "--raw_pixel")
        self.assertIn(
            "validation files of another conversion (raw_pixel: False, now True)", done.stderr
        )

    def test_missing_files_and_names_are_reported(self):
        pictures.write(self.path("less.txt"), f"{SYNSETS[0]}\ttench\n{SYNSETS[2]}\tcab\n")
        self.assert_refused(
            "less.txt lacks the names of n02099601", imagenet_metadata_file=self.path("less.txt")
        )
        for flag in ("labels_file", "imagenet_metadata_file", "bounding_box_file"):
            self.assert_refused(f"`{flag}` /no", "No such file", **{flag: "/no"})
        self.assert_refused("`train_shards` must be a positive integer", train_shards=0)
        self.assert_refused("line 1", bounding_box_file=self.path("synsets.txt"))

    def test_classes_other_than_wordnet_ids_are_refused(self):
        for name in ("/etc", "../x", "n0144076", "n014407640", "n0144076\u0664", "N01440764", "x"):
            pictures.write(self.path("synsets.txt"), f"{SYNSETS[0]}\n{name}\n")
            self.assert_refused("`labels_file`", self.path("synsets.txt"))

    def test_options_without_effect_are_refused(self):
        self.assert_refused("`resize_dimen` needs --raw_pixel True", resize_dimen=16)
        self.assert_refused("`resize_dimen` must be", raw_pixel=True, resize_dimen=-1)
        self.assert_refused("must be True or False", "'perhaps'", raw_pixel="perhaps")

    def test_unreadable_images_are_named(self):
        path = self.path("train", SYNSETS[1], "n02099601_train0.JPEG")
        os.truncate(path, 100)
        done = self.build("out")
        self.assertEqual((done.status, len(done.stderr.splitlines())), (2, 1), done)
        self.assertIn(f"{path}: the image is damaged", done.stderr)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
