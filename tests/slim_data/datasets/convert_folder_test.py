"""A folder of images: all image formats, classes, split, bad files, and refusals."""

import collections
import io
import os
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

import slim_data
from slim_data.datasets.sources import image_files, image_tree
from slim_data.input import validation
from slim_data.tfrecord import shards
from tests.slim_data import pictures, programs, samples

CLASSES = ("cats", "dogs", "Ünïcödé 猫")
PIXELS = pictures.pixels(48, 32, seed=3)
FEATURES = {
    "image/class/text": tf.io.FixedLenFeature([], tf.string),
    "image/filename": tf.io.FixedLenFeature([], tf.string),
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def encode(kind, mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, kind, **options)
    return file.getvalue()


def exif(orientation):
    found = Image.Exif()
    found[0x0112] = orientation
    return found.tobytes()


def bad_files():
    """Returns {name: bytes} of files that are no valid images."""
    return {
        "empty.jpg": b"",
        "text.jpg": b"no image",
        "cut.jpg": encode("JPEG")[:300],
        "cut.png": encode("PNG")[:100],
        "cut.gif": encode("GIF")[:100],
        "cut.webp": encode("WEBP")[:100],
        "cut.bmp": encode("BMP")[:100],
        "other.tif": encode("TIFF"),
    }


class ConvertFolderTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = samples.new_folder(self)
        self.images, self.output = self.path("images"), self.path("output")
        for label in CLASSES:
            for i in range(10):
                self.add(f"{label}/{i}.jpg", pictures.encode(pictures.pixels(40, 30, seed=i)))

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def add(self, file, data):
        pictures.write(os.path.join(self.images, file), data)

    def run_program(self, *arguments, directory=None):
        return programs.call(
            "convert_image_folder", directory or self.images, self.output, *arguments
        )

    def convert(self, *arguments):
        done = self.run_program(*arguments)
        self.assertEqual(done.status, 0, done.stderr)
        return done.stdout

    def assert_refused(self, pattern, *arguments, directory=None):
        done = self.run_program(*arguments, directory=directory)
        self.assertEqual((done.status, done.stderr.count("\n")), (2, 1), done)
        self.assertRegex(done.stderr, pattern)
        return done

    def read(self, split):
        records = tf.data.TFRecordDataset(shards.find_shards(self.output, split))
        parsed = records.map(lambda record: tf.io.parse_single_example(record, FEATURES))
        return list(parsed.as_numpy_iterator())

    def files(self, split):
        return {
            f"{r['image/class/text'].decode()}/{os.fsdecode(r['image/filename'])}"
            for r in self.read(split)
        }

    def test_sub_folders_are_classes_and_the_result_is_a_data_set(self):
        self.convert("--validation", 0.2)
        info = slim_data.info("folder", self.output)
        self.assertEqual((info.labels, info.label_offset), (tuple(sorted(CLASSES)), 0))
        for record in self.read("train"):
            text = record["image/class/text"].decode()
            self.assertEqual(info.labels[record["image/class/label"]], text)
        counts = validation.validate("folder", self.output)
        for split, number in (("train", 8), ("validation", 2)):
            total = sum(counts[split].values(), start=collections.Counter())
            self.assertEqual(total, dict.fromkeys(range(3), number))
        (images, labels), *_ = slim_data.load("folder", self.output, "train", 4, 24, training=True)
        self.assertEqual((images.shape, labels.shape), ((4, 24, 24, 3), (4,)))

    def test_every_image_format_is_read_as_viewers_show_it(self):
        makes = {
            "rgb.jpg": encode("JPEG", quality=95),
            "grey.jpg": encode("JPEG", "L"),
            "cmyk.jpg": encode("JPEG", "CMYK"),
            "alpha.png": encode("PNG", "RGBA"),
            "palette.png": encode("PNG", "P"),
            "two.png": encode("PNG", "1"),
            "still.gif": encode("GIF"),
            "moving.gif": encode(
                "GIF", save_all=True, append_images=[Image.fromarray(255 - PIXELS)]
            ),
            "lossy.webp": encode("WEBP", quality=95),
            "alpha.webp": encode("WEBP", "RGBA", lossless=True),
            "moving.webp": encode(
                "WEBP", save_all=True, append_images=[Image.fromarray(255 - PIXELS)]
            ),
            "rgb.bmp": encode("BMP"),
            "grey.bmp": encode("BMP", "L"),
            "wrong name.jpg": encode("PNG"),
        }
        makes |= {f"turned {n}.jpg": encode("JPEG", exif=exif(n), quality=95) for n in range(1, 9)}
        makes |= {f"turned {n}.png": encode("PNG", exif=exif(n)) for n in (1, 3, 6)}
        makes["turned.webp"] = encode("WEBP", exif=exif(8), quality=95)
        makes["turned 99.jpg"] = encode("JPEG", exif=exif(99), quality=95)
        for name, data in makes.items():
            self.add(f"dogs/{name}", data)
        self.convert()
        found = {}
        for record in self.read("train") + self.read("validation"):
            name = record["image/filename"].decode()
            if name in makes:
                found[name] = record["image/encoded"]
        self.assertCountEqual(found, makes)
        kept = {"rgb.jpg", "grey.jpg", "turned 1.jpg", "turned 99.jpg"}
        for name, data in makes.items():
            self.assertEqual(found[name][:3], b"\xff\xd8\xff", name)
            self.assertEqual(found[name] == data, name in kept, name)
            upright = Image.open(io.BytesIO(data))
            if "99" not in name:
                upright = ImageOps.exif_transpose(upright)
            expected = np.asarray(upright.convert("RGB")).astype(int)
            pixels = pictures.decode(found[name])
            self.assertEqual(pixels.shape, expected.shape, name)
            self.assertLess(np.abs(pixels - expected).mean(), 2.5, name)
            # Prediction shows the network the same image.
            self.assertAllEqual(
                tf.io.decode_image(image_files.upright(data), 3).shape, expected.shape
            )

    def test_a_repeated_conversion_says_what_it_wrote(self):
        arguments = ("--validation", 0.2, "--train_shards", 2, "--validation_shards", 1)
        self.assertIn(
            "Wrote 24 train images to train-00000-of-00002 to train-", self.convert(*arguments)
        )
        os.remove(os.path.join(self.output, "train-00001-of-00002"))
        told = self.convert(*arguments)
        self.assertIn("Wrote 12 train images to train-00000-of-00002 to train-", told)
        self.assertIn("All 6 validation images are in validation-00000-of-00001 already\n", told)
        self.assertNotIn("Wrote", self.convert(*arguments))

    def test_a_full_disk_has_its_own_status(self):
        with samples.small_disk(self, 16) as self.output:
            done = self.run_program()
        self.assertEqual((done.status, done.stderr.count("\n")), (4, 1), done)
        self.assertIn("No space left on device", done.stderr)

    def test_nested_images_count_and_files_of_operating_systems_do_not(self):
        self.add("cats/deep/er/猫.jpg", encode("JPEG"))
        os.symlink("0.jpg", os.path.join(self.images, "cats", "link.jpg"))
        os.symlink(self.images + "/dogs", os.path.join(self.images, "linked dogs"))
        os.symlink("..", os.path.join(self.images, "cats", "loop"))
        os.symlink(".", os.path.join(self.images, "cats", "loop 2"))
        for name in ("Thumbs.db", ".DS_Store", "desktop.ini", "._0.jpg"):
            self.add(f"cats/{name}", b"no image")
        for name in ("__MACOSX/cats/._0.jpg", ".cache/0.jpg", ".DS_Store", "README", "0.jpg"):
            self.add(name, b"no image")
        self.convert("--validation", 0)
        self.assertEqual(shards.find_shards(self.output, "validation"), [])
        found = self.files("train")
        self.assertLen(self.read("train"), 42)
        self.assertContainsSubset(
            {"cats/deep/er/猫.jpg", "cats/link.jpg", "linked dogs/0.jpg"}, found
        )
        self.assertEqual(slim_data.info("folder", self.output).num_classes, 4)

    def test_each_class_is_split_and_the_split_is_stable(self):
        sizes = {"a": 1, "b": 2, "c": 95, "d": 4}
        names = [f"{label}/{i}" for label, number in sizes.items() for i in range(number)]
        for part, numbers in ((0.0, [0, 0, 0, 0]), (0.1, [0, 1, 10, 1]), (0.9, [0, 1, 86, 3])):
            found = image_tree.split(names, part, 0)
            self.assertEqual(sorted(found["train"] + found["validation"]), sorted(names))
            counts = [sum(f.startswith(c) for f in found["validation"]) for c in "abcd"]
            self.assertEqual(counts, numbers)
        first = image_tree.split(names, 0.2, 0)
        self.assertEqual(image_tree.split(names[::-1], 0.2, 0), first)
        other = image_tree.split(names, 0.2, 1)
        self.assertNotEqual(set(other["validation"]), set(first["validation"]))
        fewer = image_tree.split([n for n in names if n != first["train"][0]], 0.2, 0)
        # At most one image of the class moves to the other split.
        self.assertLessEqual(len(set(fewer["validation"]) ^ set(first["validation"])), 1)
        # Classes are shuffled.
        self.assertNotEqual(first["train"], sorted(first["train"]))

    def test_all_bad_files_are_reported_in_one_run_which_succeeds_without_them(self):
        paths = []
        for i, (name, data) in enumerate(bad_files().items()):
            self.add(f"{CLASSES[i % 3]}/{name}", data)
            paths.append(os.path.join(self.images, CLASSES[i % 3], name))
        paths.append(os.path.join(self.images, "dogs", "nowhere.jpg"))
        os.symlink("nothing", paths[-1])
        paths.append(os.path.join(self.images, "dogs", "pipe.jpg"))
        os.mkfifo(paths[-1])
        done = self.assert_refused("; and 9 more, as told above; remove or replace .* --skip_bad$")
        told = done.stdout.splitlines()
        self.assertCountEqual([line.partition(": ")[0] for line in told], paths)
        self.assertFalse(os.path.exists(self.output))
        skipped = self.convert("--skip_bad")
        self.assertIn("left out 10 of 40 files", skipped)
        self.assertEqual(self.convert("--skip_bad").splitlines()[:11], skipped.splitlines()[:11])
        before = samples.contents(self.output)
        for path in paths:
            os.remove(path)
        shutil.rmtree(self.output)
        self.convert()
        self.assertEqual(samples.contents(self.output), before)

    def test_an_interrupted_conversion_resumes(self):
        self.convert()
        before = samples.contents(self.output)
        for name in ("train-00002-of-00008", "labels.txt"):
            os.remove(os.path.join(self.output, name))
        self.convert()
        self.assertEqual(samples.contents(self.output), before)
        self.add("cats/new.jpg", encode("JPEG"))
        self.assert_refused("files of another conversion .*choose another folder")

    def test_no_image_is_in_both_splits_after_an_interruption(self):
        self.convert("--validation", 0.2)
        for path in shards.find_shards(self.output, "train"):
            os.remove(path)
        before = samples.contents(self.output)
        pattern = "already holds validation-00000-of-00002 .*remove its validation files"
        self.assert_refused(pattern, "--validation", 0)
        self.assertEqual(samples.contents(self.output), before)

    def test_a_data_set_without_validation_images_is_whole(self):
        self.convert("--validation", 0)
        told = []
        self.assertEqual(list(validation.validate("folder", self.output, told.append)), ["train"])
        self.assertEndsWith(told[-1], f"whole (train {len(self.read('train'))}, no validation)")
        # A split that was written must be there.
        self.output = self.path("both")
        self.convert("--validation", 0.2)
        for path in shards.find_shards(self.output, "validation"):
            os.remove(path)
        with self.assertRaisesRegex(slim_data.DataError, "No validation files of folder"):
            validation.validate("folder", self.output)

    def test_a_folder_of_its_own_can_validate(self):
        for label in CLASSES[:2]:
            pictures.write(self.path("val", label, "own.png"), encode("PNG"))
        self.convert("--validation", self.path("val"))
        self.assertEqual(self.files("validation"), {"cats/own.png", "dogs/own.png"})
        self.assertLen(self.read("train"), 30)
        pictures.write(self.path("val", "bird", "own.png"), encode("PNG"))
        pattern = "val holds a folder that .*images does not: 'bird'"
        self.assert_refused(pattern, "--validation", self.path("val"))

    def test_mistakes_are_refused_before_writing(self):
        for value in (1, -0.1, "nan", 2.5):
            self.assert_refused("`validation` must be at least 0 and less", "--validation", value)
        rule = "must be a folder that can be read.*none' .No such file"
        self.assert_refused(f"`validation` {rule}", "--validation", self.path("none"))
        self.assert_refused(f"`directory` {rule}", directory=self.path("none"))
        self.assert_refused("must be another folder", "--validation", f"{self.images}/")
        self.assert_refused("`num_processes` must be a positive", "--num_processes", 0)
        wrong = "--train_shards", 0  # before any image is read
        self.assert_refused(
            "`train_shards` must be a positive", *wrong, directory=self.path("none")
        )
        self.assert_refused("seed", "--seed", "x")
        one = self.path("one")
        pictures.write(f"{one}/photos/cats/0.jpg", encode("JPEG"))
        self.assert_refused("must hold two folders or more.*'photos'", directory=one)
        pictures.write(f"{one}/empty/notes", "")
        self.assert_refused("empty/notes: it is no JPEG", directory=one)
        self.assert_refused("one/empty holds no image", "--skip_bad", directory=one)
        for split in ("Train", "val"):
            shutil.copytree(self.images, self.path("ready", split))
        pattern = "holds Train, val, .* ready/Train with --validation ready/val".replace(
            "ready/", f"{self.path('ready')}/"
        )
        self.assert_refused(pattern, directory=self.path("ready"))
        self.add("cats \n/0.jpg", encode("JPEG"))
        self.assert_refused("must be printable text without spaces around")
        self.output = os.path.join(self.images, "records")
        shutil.rmtree(os.path.join(self.images, "cats \n"))
        self.assert_refused("`dataset_dir` must not lie in the folder of images")
        self.assertEqual(sorted(os.listdir(self.images)), sorted(CLASSES))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
