"""Validation of a converted folder: counts, and reported faults."""

import collections
import os
import sys

import pytest
import tensorflow as tf

import slim_data
from slim_data.input import validation
from slim_data.tfrecord import examples
from tests.slim_data import photos, samples


class ValidationTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.content = samples.write_mnist(self.folder)
        self.files = slim_data.convert(
            "mnist", self.folder, shard=True, train_shards=3, allow_other_archives=True
        )

    def replace(self, record):
        """Replaces record 4 of the second training file."""
        records = list(tf.data.TFRecordDataset(self.files["train"][1]).as_numpy_iterator())
        records[4] = record
        samples.write_records(self.files["train"][1], records)

    def assert_named(self, reason, number=4):
        with self.assertRaises(slim_data.DataError) as caught:
            validation.validate("mnist", self.folder)
        start = f"{self.files['train'][1]}: record {number} (counted from 0): "
        self.assertStartsWith(str(caught.exception), start)
        self.assertIn(reason, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def changed(self, key, *, size=28, **value):
        """Returns a valid record in which one key has another value, or is missing."""
        example = tf.train.Example.FromString(
            examples.build_example(samples.png(size=size), "png", (28, 28, 1), 3, "three")
        )
        del example.features.feature[key]
        if value:
            example.features.feature[key].CopyFrom(tf.train.Feature(**value))
        return example.SerializeToString()

    def test_records_are_counted_by_file_and_class(self):
        found = validation.validate("mnist", self.folder)
        self.assertEqual({s: list(c) for s, c in found.items()}, self.files)
        sizes = [sum(c.values()) for c in found["train"].values()]
        self.assertEqual(sizes, [7, 8, 8])
        for split, (_, labels) in self.content.items():
            total = sum(found[split].values(), collections.Counter())
            self.assertEqual(total, collections.Counter(labels.tolist()))

    def test_the_table_names_files_and_classes(self):
        lines = []
        validation.validate("mnist", self.folder, lines.append)
        rows = [line.split() for line in "\n".join(lines).splitlines()]
        self.assertIn(["train-00001-of-00003", "8"], rows)
        self.assertIn(["test-00000-of-00001", "7"], rows)
        threes = [str((labels == 3).sum()) for _, labels in self.content.values()]
        self.assertIn(["3", "three", *threes], rows)
        summary = "30 records in 4 files, whole (train 23 of the published 60000, test 7 of"
        self.assertIn(summary, lines[-1])

    def test_files_that_lost_whole_records_are_named(self):
        first, second, _ = self.files["train"]
        worker = slim_data.split_dataset(self.folder, 3, 1)
        os.truncate(second, samples.record_offsets(second)[5])
        reason = f"{os.path.basename(second)} holds 5 records, but 8 were written to it"
        for folder in (self.folder, worker):
            with self.assertRaisesRegex(slim_data.DataError, f"{reason}$"):
                validation.validate("mnist", folder, allow_other_counts=True)
        os.truncate(first, 0)
        lines = []
        with self.assertRaisesRegex(slim_data.DataError, "holds 0 .* but 7 .*; and 1 more file"):
            validation.validate("mnist", self.folder, lines.append)
        self.assertTrue(lines[4].endswith(reason), lines)

    def test_unknown_conversions_hold_as_many_records_as_published(self):
        os.remove(os.path.join(self.folder, ".train.conversion.json"))
        with self.assertRaisesRegex(
            slim_data.DataError, "MNIST has 23 of the published 60000 train records; --allow_other"
        ):
            validation.validate("mnist", self.folder)
        validation.validate("mnist", self.folder, allow_other_counts=True)
        os.truncate(self.files["train"][1], 0)
        with self.assertRaisesRegex(slim_data.DataError, "train-00001-of-00003 is empty$"):
            validation.validate("mnist", self.folder, allow_other_counts=True)

    def test_a_workers_folder_is_read_alone(self):
        folder = slim_data.split_dataset(self.folder, 3, 2)
        found = validation.validate("mnist", folder)
        self.assertEqual(list(found), ["train"])
        self.assertEqual(sum(sum(c.values()) for c in found["train"].values()), 8)

    def test_a_missing_split_is_named(self):
        os.remove(self.files["test"][0])
        with self.assertRaisesRegex(slim_data.DataError, "No test files"):
            validation.validate("mnist", self.folder)

    def test_damaged_bytes_are_named(self):
        offsets = samples.record_offsets(self.files["train"][1])
        samples.flip_bit(self.files["train"][1], offsets[2] + 30)
        self.assert_named("checksum", number=2)
        os.truncate(self.files["train"][1], offsets[1] + 5)
        self.assert_named("truncated", number=1)

    def test_all_files_are_read_and_all_faults_are_reported(self):
        first, second, third = self.files["train"]
        for number in range(7):
            samples.flip_bit(first, samples.record_offsets(first)[number] + 30)
        samples.write_records(second, [b"no example"] * 12)
        os.truncate(third, samples.record_offsets(third)[1] + 5)
        lines = []
        with self.assertRaises(slim_data.DataError) as caught:
            validation.validate("mnist", self.folder, lines.append)
        self.assertEqual(
            str(caught.exception),
            f"{first}: record 0 (counted from 0): the data does not match its checksum; "
            "and 19 more, in 3 files in all, see above",
        )
        rows = [line.split("  ")[0] for line in lines]
        places = [rows.index(os.path.basename(path)) for path in (first, second, third)]
        self.assertEqual(places, [1, 9, 21])
        self.assertEqual(lines[20], "  and 2 more")
        self.assertRegex(lines[22], r"^  record 1 .* truncated.*; nothing after it can be found$")
        self.assertEqual(lines[23].split(), ["test-00000-of-00001", "7"])

    @pytest.mark.slow
    def test_every_key_must_be_there(self):
        scalars = ("encoded", "format", "height", "width", "channels", "colorspace")
        for key in (*scalars, "class/label", "class/text"):
            self.replace(self.changed(f"image/{key}"))
            self.assert_named(f"image/{key}")

    def test_every_key_must_have_its_type(self):
        text = {"bytes_list": tf.train.BytesList(value=[b"x"])}
        for key in ("image/height", "image/class/label", "image/object/bbox/xmin"):
            self.replace(self.changed(key, **text))
            self.assert_named(key)

    def test_sizes_and_labels_must_be_right(self):
        def number(value):
            return {"int64_list": tf.train.Int64List(value=[value])}

        for key, value, reason in (
            ("height", 27, "not those of the image: 27 28 1"),
            ("channels", 3, "not those of the image: 28 28 3"),
            ("class/label", 10, "label is not 0 to 9: 10"),
        ):
            self.replace(self.changed(f"image/{key}", **number(value)))
            self.assert_named(reason)
        self.replace(self.changed("image/height", size=20, **number(20)))
        self.assert_named("image is not 28 x 28 x 1: 20 20 1")

    def test_photos_may_have_any_size_if_it_is_stated(self):
        folder = samples.new_folder(self)

        def write(stated):
            for split in ("train", "validation"):
                records = [
                    examples.build_example(
                        photos.jpeg(photos.pixels(*size)), "JPEG", (*seen, 3), 5, "tulips"
                    )
                    for size, seen in (((20, 30), (20, 30)), ((31, 12), stated))
                ]
                path = os.path.join(folder, f"{split}-00000-of-00001")
                samples.write_records(path, records)

        write((31, 12))
        found = validation.validate("flowers", folder, allow_other_counts=True)
        for counts in found.values():
            self.assertEqual(list(counts.values()), [{5: 2}])
        write((12, 31))
        with self.assertRaisesRegex(
            slim_data.DataError, "record 1 .* not those of the image: 12 31"
        ):
            validation.validate("flowers", folder)

    def test_damaged_images_are_named(self):
        cut = {"bytes_list": tf.train.BytesList(value=[samples.png()[:-30]])}
        self.replace(self.changed("image/encoded", **cut))
        self.assert_named("PNG")


class ProgramTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_a_valid_folder_passes_and_a_fault_is_reported_at_the_end(self):
        folder = samples.new_folder(self)
        path = slim_data.convert("digits", folder, shard=True, train_shards=2)["train"][1]
        arguments = ("slim_data.validate", "--dataset_name", "digits", "--dataset_dir", folder)
        done = samples.run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        summary = "Digits: 1797 records in 3 files, whole (train 1437, test 360)"
        self.assertEqual(done.stdout.splitlines()[-1], summary)

        samples.flip_bit(path, samples.record_offsets(path)[9] + 40)
        done = samples.run(*arguments)
        self.assertEqual(done.returncode, 2)
        fault = f"{path}: record 9 (counted from 0): the data does not match its checksum"
        self.assertEqual(done.stderr.splitlines()[-1], f"validate_dataset: error: {fault}")
        self.assertNotIn("whole", done.stdout)
        rows = [line.split() for line in done.stdout.splitlines()]
        self.assertIn(["train-00001-of-00002", "718"], rows)
        self.assertIn(["test-00000-of-00001", "360"], rows)

    def test_misuse_is_one_line_and_a_status(self):
        folder = samples.new_folder(self)
        for arguments, part in (
            (["--dataset_dir", folder], "--dataset_name"),
            (["--dataset_name", "mnits", "--dataset_dir", folder], "must be one of digits,"),
            (["--dataset_name", "mnist", "--dataset_dir", folder], "No train files"),
            (["--dataset_name", "mnist", "--dataset_dir", folder, "stray"], "stray"),
        ):
            done = samples.run("slim_data.validate", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertLen(done.stderr.splitlines(), 1)
            self.assertIn(part, done.stderr)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
