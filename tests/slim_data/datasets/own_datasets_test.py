"""Custom data sets: idx files, folders of images, and a builder that a program registers."""

import dataclasses
import hashlib
import os
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets import registry
from slim_data.datasets.sources import image_folders, labels_file
from slim_data.files import download
from slim_data.input import validation
from tests.slim_data import photos, pictures, programs, samples, servers

CLASSES = [f"class {i}" for i in range(10)]


class Stripes(slim_data.DatasetBuilder):
    """The example of `DatasetBuilder`."""

    info = slim_data.DatasetInfo(
        name="stripes",
        title="Stripes",
        labels=("rows", "columns"),
        channels=1,
        image_size=28,
        splits={"train": 100, "test": 20},
        preprocessings=slim_data.info("mnist").preprocessings,
    )
    has_raw_dir = False

    def fingerprint(self):
        return {"version": 1}

    def num_examples(self, split):
        return self.info.splits[split]

    def generate_images(self, split, start=0, stop=None):
        for i in range(self.num_examples(split))[start:stop]:
            image = np.zeros([28, 28, 1], np.uint8)
            image[:: 2 + i] = 255
            yield (image, 0) if i % 2 else (image.swapaxes(0, 1), 1)


class DatasetsTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.raw_dir = samples.new_folder(self)

    def assert_refused(self, parts, function, *arguments, **options):
        with self.assertRaises(slim_data.DataError) as caught:
            function(*arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))


class IdxTest(DatasetsTestCase):
    def setUp(self):
        super().setUp()
        self.content = samples.write_mnist(self.raw_dir)

    def convert(self, **options):
        options = {"labels": CLASSES, **options}
        return slim_data.convert("idx", self.folder, raw_dir=self.raw_dir, **options)

    def test_records_hold_the_files_and_the_names_of_the_classes(self):
        files = self.convert(shard=True, train_shards=2)
        for split, (images, labels) in self.content.items():
            records = samples.read(files[split])
            self.assertAllEqual([record["pixels"] for record in records], images[..., None])
            texts = [record["image/class/text"].decode() for record in records]
            self.assertEqual(texts, [CLASSES[label] for label in labels])
        found = slim_data.info("idx", self.folder)
        self.assertEqual((found.labels, found.num_classes), (tuple(CLASSES), 10))
        validation.validate("idx", self.folder)
        self.assertEqual(slim_data.verify(files["test"], "idx"), 7)
        (images, _), *_ = slim_data.load("idx", self.folder, "train", 5, 28, training=True)
        self.assertEqual(images.shape, (5, 28, 28, 1))

    def test_a_workers_folder_takes_the_names_of_the_whole(self):
        self.convert(shard=True, train_shards=2)
        own = slim_data.split_dataset(self.folder, 2, 1)
        self.assertEqual(slim_data.info("idx", own).labels, tuple(CLASSES))
        self.assertLen(list(slim_data.load("idx", own, "train", 12, 28, training=False)), 1)

    def test_files_of_other_data_sets_of_the_format_are_found(self):
        for name in os.listdir(self.raw_dir):
            other = f"emnist-letters-{name.replace('t10k', 'test')}"
            os.rename(os.path.join(self.raw_dir, name), os.path.join(self.raw_dir, other))
        self.assertLen(samples.read(self.convert()["train"]), 23)
        samples.write_mnist(self.raw_dir)
        parts = ["one file train-images-idx3-ubyte.gz", "with 2"]
        self.folder = samples.new_folder(self)
        self.assert_refused(parts, self.convert)

    def test_classes_are_named_on_the_command_line_or_in_a_file(self):
        lines = os.path.join(self.raw_dir, "names")
        pictures.write(lines, "\n".join(CLASSES))
        for labels in (",".join(CLASSES), f"{', '.join(CLASSES)},", lines):
            folder = samples.new_folder(self)
            arguments = ["--dataset_name", "idx", "--raw_dir", self.raw_dir, "--labels", labels]
            done = programs.call("download_and_convert_data", *arguments, "--dataset_dir", folder)
            self.assertEqual(done.status, 0, done.stderr)
            self.assertEqual(slim_data.info("idx", folder).labels, tuple(CLASSES))
        # A class without a name would shift those of the others.
        arguments = ["--dataset_name", "idx", "--raw_dir", self.raw_dir, "--labels", "a,,c"]
        done = programs.call("download_and_convert_data", *arguments, "--dataset_dir", folder)
        self.assertIn("Received: '' of class 2", done.stderr)

    def test_wrong_names_are_refused(self):
        for labels, part in (
            (None, "must be a list of the names of the 1 to 256 classes"),
            ("abc", "classes. Received: labels='abc'"),
            ([1, 2, 3], "must be a list of the names"),
            ([], "must be a list of the names of the 1 to 256 classes"),
            ([str(i) for i in range(257)], "must be a list of the names of the 1 to 256 classes"),
            (["a", "b\nc"], "must be printable text"),
            (["a", ""], "must be printable text"),
            (["a", "b", "a"], "Received twice: 'a'"),
            (CLASSES[:-1], "is not 0 to 8"),
        ):
            with self.subTest(labels=labels):
                self.content["train"][1][0] = 9
                self.assert_refused([part], self.convert, labels=labels)
        self.assert_refused(
            ["`labels` has no meaning for mnist"],
            *(slim_data.convert, "mnist", self.folder),
            labels=CLASSES,
        )

    def test_another_naming_is_another_conversion(self):
        self.convert()
        self.assert_refused(["another conversion"], self.convert, labels=CLASSES[::-1])


class OfficialArchivesTest(DatasetsTestCase):
    def test_archives_that_are_not_official_are_refused_unless_allowed(self):
        samples.write_mnist(self.raw_dir)
        for name, title in (("mnist", "MNIST"), ("fashion_mnist", "Fashion-MNIST")):
            folder = samples.new_folder(self)
            parts = ["train-images-idx3-ubyte.gz is not the official", title, "SHA-256 is"]
            convert = [slim_data.convert, name, folder]
            self.assert_refused(parts, *convert, raw_dir=self.raw_dir)
            self.assertEqual(os.listdir(folder), [])
            files = slim_data.convert(name, folder, raw_dir=self.raw_dir, allow_other_archives=True)
            texts = {r["image/class/text"].decode() for r in samples.read(files["train"])}
            self.assertContainsSubset(texts, slim_data.info(name).labels)

    def test_official_archives_are_taken(self):
        samples.write_mnist(self.raw_dir)
        fashion = slim_data.find_builder("fashion_mnist")
        known = tuple(fashion(self.raw_dir).fingerprint().items())
        with mock.patch.object(fashion, "other_checksums", known):
            slim_data.convert("fashion_mnist", self.folder, raw_dir=self.raw_dir)


class FolderTest(DatasetsTestCase):
    def setUp(self):
        super().setUp()
        for split in ("train", "validation"):
            for label in ("cats", "dogs", "no animals"):
                for i in range(3):
                    data = pictures.encode(pictures.pixels(40 + i, 30, seed=i))
                    pictures.write(f"{self.raw_dir}/{split}/{label}/{i}.jpg", data)
        pictures.write(f"{self.raw_dir}/names", "dogs\ncats\nno animals\n")
        done = programs.call(
            "build_image_data",
            *("--train_directory", f"{self.raw_dir}/train"),
            *("--validation_directory", f"{self.raw_dir}/validation"),
            *("--labels_file", f"{self.raw_dir}/names", "--output_directory", self.folder),
        )
        self.assertEqual(done.status, 0, done.stderr)

    def test_output_of_build_image_data_is_read(self):
        found = slim_data.info("folder", self.folder)
        self.assertEqual(found.labels, ("dogs", "cats", "no animals"))
        self.assertEqual((found.label_offset, found.num_classes), (1, 4))
        counts = validation.validate("folder", self.folder)
        for split in ("train", "validation"):
            self.assertEqual(sum(c.total() for c in counts[split].values()), 9)
        batches = list(slim_data.load("folder", self.folder, "train", 4, 24, training=True))
        labels = np.concatenate([labels for _, labels in batches])
        self.assertAllEqual(np.sort(labels), [1, 1, 1, 2, 2, 2, 3, 3, 3])

    def test_labels_that_the_folder_does_not_name_are_damage(self):
        labels_file.write_labels(self.folder, ["dogs", "cats"], 1)
        self.assert_refused(["label is not 1 to 2"], validation.validate, "folder", self.folder)

    def test_it_is_written_by_its_own_program_and_read_with_its_folder(self):
        self.assert_refused(
            ["slim_data.convert_image_folder"], slim_data.convert, "folder", self.folder
        )
        self.assert_refused(["needs a folder, `data_dir`"], slim_data.info, "folder")
        empty = samples.new_folder(self)
        self.assert_refused(
            ["`data_dir` must hold labels.txt", empty], slim_data.info, "folder", empty
        )
        parts = ["No train files", f"slim_data.convert_image_folder DIR {empty}"]
        self.assert_refused(parts, slim_data.find_files, "folder", empty, "train")


class LabelsFileTest(DatasetsTestCase):
    def read(self, text):
        pictures.write(f"{self.folder}/labels.txt", text)
        return labels_file.read_labels("folder", self.folder)

    def test_names_with_and_without_numbers_are_read(self):
        self.assertEqual(self.read("0:a\n1:b:c\n"), (("a", "b:c"), 0))
        self.assertEqual(self.read("7:a\n\n8:b"), (("a", "b"), 7))
        self.assertEqual(self.read("a\r\nb: c \n\n\n"), (("a", "b: c"), 1))
        self.assertEqual(self.read("né\nzwei drei\n"), (("né", "zwei drei"), 1))

    def test_invalid_label_files_are_refused_with_the_line(self):
        for text, line, rule in (
            ("", None, "must name 1 to"),
            ("\n\n", None, "must name 1 to"),
            (b"\xff\xfe\n", None, "must be a text file"),
            ("\ufeff0:a\n1:b\n", 1, "without a byte order mark"),
            ("\ufeffa\nb\n", 1, "without a byte order mark"),
            ("0:a\n2:b\n", 2, "without gaps, here 1"),
            ("1:a\n1:b\n", 2, "without gaps, here 2"),
            ("0:a\n\n2:b\n", 3, "without gaps, here 1"),
            ("a\n1:b\n", 1, "must be <number>:<name>"),
            ("0:a\n1 b\n2:c\n", 2, "must be <number>:<name>"),
            ("0:a\n1:\n2:c\n", 2, "must be <number>:<name>"),
            ("0 :a\n1 :b\n", 1, "must be <number>:<name>"),
            ("-1:a\n0:b\n", 1, "must be <number>:<name>"),
            ("\u0661:a\n", 1, "must be <number>:<name>"),
            ("99999999999:a\n0:b\n", 1, "must be <number>:<name>"),
            ("a\n\nb\n", 2, "only the last lines may be empty"),
            ("\na\n", 1, "only the last lines may be empty"),
            ("a\nb\na\n", 3, "not repeat that of line 1"),
            ("0:a\n1:a\n", 2, "not repeat that of line 1"),
            ("a\nb\x00\n", 2, "must be printable text"),
            ("a\nb\x0c\n", 2, "must be printable text"),
            ("0:a\n1:\x1b[31mb\n", 2, "must be printable text"),
            ("a\n" + 1000 * "\u200b" + "\n", 2, "must be printable text"),
        ):
            with self.subTest(text=text[:20]):
                where = f"{self.folder}/labels.txt" + (f", line {line}: " if line else "")
                self.assert_refused([where, rule], self.read, text)

    def test_a_byte_order_mark_is_refused_in_every_list(self):
        path = f"{self.folder}/names"
        pictures.write(path, "\ufeffa\nb\n")
        parts = ["`labels_file`", "line 1: a text file must begin without a byte order mark"]
        self.assert_refused(parts, image_folders.read_labels, path)


class OwnImagesTest(DatasetsTestCase):
    def write(self, numbers, split="train"):
        with tf.io.TFRecordWriter(f"{self.folder}/{split}-00000-of-00001") as writer:
            for seed, number in enumerate(numbers):
                writer.write(photos.example(photos.jpeg(photos.pixels(seed=seed)), number))

    def labels(self, **options):
        batches = slim_data.load("flowers", self.folder, "train", 3, 24, training=False, **options)
        return np.concatenate([labels for _, labels in batches])

    def test_labels_txt_names_them(self):
        for name, usual in (("flowers", 5), ("imagenet", 1000)):
            for labels in (["dog", "cat"], [f"kind {i}" for i in range(1200)]):
                labels_file.write_labels(self.folder, labels, 1)
                found = slim_data.info(name, self.folder)
                self.assertEqual(found.labels[: len(labels)], tuple(labels))
                self.assertEqual(set(found.labels[len(labels) :]) - {""}, set())
                # The data set's usual network, unless it has too few outputs.
                self.assertEqual(found.num_classes, 1 + max(usual, len(labels)))
            labels_file.write_labels(self.folder, ["dog", "cat"], 1)
            self.assertEqual(slim_data.info(name, self.folder, 2).labels, ("dog", "cat"))
            self.assertEqual(slim_data.info(name, self.folder, 3).labels, ("dog", "cat", ""))
            parts = ["`num_classes` must be at least the 2 classes", "Received: num_classes=1"]
            self.assert_refused(parts, slim_data.info, name, self.folder, 1)
        self.assertEqual(slim_data.info("flowers").labels[0], "daisy")
        # Data sets with images of a fixed size keep their own names.
        self.assertEqual(slim_data.info("cifar10", self.folder).labels[0], "airplane")

    def test_labels_txt_sets_the_first_number(self):
        labels_file.write_labels(self.folder, [f"kind {i}" for i in range(7)], 0)
        self.write(range(7))
        self.assertAllEqual(self.labels(), range(7))
        self.assertEqual(slim_data.info("flowers", self.folder).num_classes, 7)

    def test_without_labels_txt_num_classes_sets_the_number_of_classes(self):
        self.write(range(1, 8))
        damaged = "record 5 (counted from 0): label is not 1 to 5: 6"
        place = "flowers", self.folder, "train"
        with self.assertRaises(slim_data.DataError) as caught:
            with slim_data.locate_corrupt_records(*place):
                self.labels()
        self.assertIn(damaged, str(caught.exception))
        with slim_data.locate_corrupt_records(*place, 7):
            self.assertAllEqual(self.labels(num_classes=7), range(1, 8))
        self.assertAllEqual(self.labels(num_classes=7, skip_corrupt_records=True), range(1, 8))
        self.assertAllEqual(self.labels(skip_corrupt_records=True), range(1, 6))
        self.assertEqual(slim_data.info("flowers", self.folder, 7).labels, ("",) * 7)
        with self.assertRaises(slim_data.DataError) as caught:
            with slim_data.locate_corrupt_records(*place, 6):
                self.labels(num_classes=6)
        self.assertIn("record 6 (counted from 0): label is not 1 to 6: 7", str(caught.exception))


class RegisterTest(DatasetsTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(registry.DATASETS.pop, "stripes", None)

    def test_a_registered_data_set_is_converted_and_read(self):
        self.assertIs(slim_data.register(Stripes), Stripes)
        slim_data.convert("stripes", self.folder, shard=True, train_shards=3)
        validation.validate("stripes", self.folder)
        batches = slim_data.load("stripes", self.folder, "test", 20, 28, training=False)
        ((images, labels),) = batches
        self.assertAllEqual(labels, [1, 0] * 10)
        self.assertEqual(images.shape, (20, 28, 28, 1))

    def test_its_files_may_have_an_unknown_size_or_checksum(self):
        content = b"stripes"
        server = servers.Server({"a.bin": content, "b.bin": content})
        self.addCleanup(server.close)
        sha256 = hashlib.sha256(content).hexdigest()
        kinds = {"a.bin": (None, None), "b.bin": (len(content), sha256)}
        files = [download.File(n, (server.url(n),), *kind) for n, kind in kinds.items()]

        class Downloaded(Stripes):
            has_raw_dir = True
            downloads = tuple(files)

            def fingerprint(self):
                return {**slim_data.DatasetBuilder.fingerprint(self), "version": 1}

        slim_data.register(Downloaded)
        told = []
        slim_data.convert("stripes", self.folder, report=told.append)
        self.assertEqual(
            [line for line in told if "Downloading" in line],
            [f"Downloading a.bin to {self.folder}", f"Downloading b.bin (0.0 MB) to {self.folder}"],
        )
        pictures.write(os.path.join(self.folder, "b.bin"), "other")
        options = {"raw_dir": self.folder, "source": "files"}
        self.assert_refused(
            [f"{self.folder}/b.bin is not the official archive"],
            *(slim_data.convert, "stripes", self.raw_dir),
            **options,
        )

    def test_names_of_splits_that_file_names_cannot_hold_are_refused(self):
        for split in ("test-a", "a/b", ""):
            info = dataclasses.replace(Stripes.info, splits={"train": 100, split: 20})
            wrong = type("Wrong", (Stripes,), {"info": info})
            parts = ["`builder` must name its splits by letters", f"split={split!r}"]
            self.assert_refused(parts, slim_data.register, wrong)

    def test_images_and_labels_that_the_description_does_not_fit_are_refused(self):
        image = np.zeros([28, 28, 1], np.uint8)

        def yields(wrong):
            generate = Stripes.generate_images

            def generate_images(self, split, start=0, stop=None):
                for number, example in enumerate(generate(self, split, start, stop), start):
                    yield wrong if number == 7 else example

            return type("Wrong", (Stripes,), {"generate_images": generate_images})

        for wrong, part in (
            ((image / 255, 0), "image must be uint8 [28, 28, 1]. Received: float64 [28, 28, 1]"),
            ((image.astype(np.uint16), 0), "Received: uint16"),
            ((image.tolist(), 0), "Received: list"),
            ((image[:, :, 0], 0), "Received: uint8 [28, 28]"),
            ((np.zeros([30, 28, 1], np.uint8), 0), "Received: uint8 [30, 28, 1]"),
            ((np.zeros([28, 28, 3], np.uint8), 0), "Received: uint8 [28, 28, 3]"),
            ((image, 2), "label must be an integer, 0 to 1. Received: 2"),
            ((image, -1), "Received: -1"),
            ((image, 1.0), "Received: 1.0"),
        ):
            with self.subTest(part=part):
                registry.DATASETS["stripes"] = yields(wrong)
                place = "`generate_images` of stripes, image 7 (from 0) of train: the "
                self.assert_refused([place, part], slim_data.convert, "stripes", self.folder)

    def test_an_error_of_the_source_is_none_of_the_folder(self):
        def fail(self, split, start=0, stop=None):
            raise tf.errors.InvalidArgumentError(None, None, "of the source")
            yield

        registry.DATASETS["stripes"] = type("Failing", (Stripes,), {"generate_images": fail})
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "of the source"):
            slim_data.convert("stripes", self.folder)

    def test_a_split_of_any_name_is_sharded(self):
        info = dataclasses.replace(Stripes.info, splits={"train": 4, "dev": 2})
        slim_data.register(type("Split", (Stripes,), {"info": info}))
        slim_data.convert("stripes", self.folder, shard=True, train_shards=2)
        batches = slim_data.load("stripes", self.folder, "dev", 2, 28, training=False)
        self.assertLen(list(batches), 1)

    def test_names_are_not_taken_twice(self):
        slim_data.register(Stripes)
        slim_data.register(Stripes)
        other = type("Other", (Stripes,), {})
        self.assert_refused(["a name that is not taken", "'stripes'"], slim_data.register, other)
        self.assert_refused(["must be a subclass"], slim_data.register, Stripes())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
