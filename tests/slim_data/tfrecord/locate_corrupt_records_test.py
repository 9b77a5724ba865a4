"""Damaged records are named, for any damage and wherever it is noticed."""

import os
import sys

import pytest
import tensorflow as tf

import slim_data
from tests.slim_data import samples


def consume(dataset, num_batches):
    for _ in dataset.take(num_batches):
        pass


@tf.function
def consume_in_graph(dataset, num_batches):
    for images, _ in dataset.take(num_batches):
        tf.debugging.assert_all_finite(images, "")


class LocateCorruptRecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        samples.write_numbered(self.folder, [6, 6, 6])
        self.paths = slim_data.find_files("mnist", self.folder, "train")

    def replace(self, record):
        """Replaces record 4 of the second file."""
        records = list(tf.data.TFRecordDataset(self.paths[1]).as_numpy_iterator())
        records[4] = record
        samples.write_records(self.paths[1], records)

    def assert_named(self, number, reason):
        start = f"{self.paths[1]}: record {number} (counted from 0): "
        with self.assertRaises(slim_data.DataError) as caught:
            slim_data.verify(self.paths, "mnist")
        messages = [str(caught.exception)]
        for training, function in ((True, consume_in_graph), (False, consume)):
            with (
                self.assertRaises(slim_data.DataError) as caught,
                slim_data.locate_corrupt_records("mnist", self.folder, "train"),
            ):
                function(slim_data.load("mnist", self.folder, "train", 3, 28, training), 18)
            messages.append(str(caught.exception))
        for message in messages:
            self.assertStartsWith(message, start)
            self.assertIn(reason, message)
            self.assertNotIn("\n", message)
            self.assertNotIn("{{", message)
            self.assertNotIn("[[", message)

    def test_whole_files_pass(self):
        self.assertEqual(slim_data.verify(self.paths, "mnist"), 18)
        with slim_data.locate_corrupt_records("mnist", self.folder, "train"):
            consume(slim_data.load("mnist", self.folder, "train", 3, 28, training=False), 6)

    def test_truncated_files_are_named(self):
        offset = samples.record_offsets(self.paths[1])[4]
        for size in (offset + 40, offset + 12, offset + 11, offset + 1):
            os.truncate(self.paths[1], size)
            self.assert_named(4, "truncated")

    def test_flipped_bits_in_the_data_are_named(self):
        samples.flip_bit(self.paths[1], samples.record_offsets(self.paths[1])[2] + 30)
        self.assert_named(2, "does not match its checksum")
        self.assertEqual(slim_data.count_examples(self.paths), 18)

    def test_flipped_bits_in_the_length_are_named(self):
        samples.flip_bit(self.paths[1], samples.record_offsets(self.paths[1])[3])
        self.assert_named(3, "the length does not match its checksum")

    def test_other_files_are_named(self):
        with open(self.paths[1], "w", encoding="utf-8") as file:
            file.write("This is not a file of records, but a text of some length.")
        self.assert_named(0, "length")

    def test_missing_images_are_named(self):
        self.replace(samples.example(None, 3))
        self.assert_named(4, "image/encoded")

    @pytest.mark.slow
    def test_missing_labels_are_named(self):
        self.replace(samples.example(samples.png(), None))
        self.assert_named(4, "image/class/label")

    @pytest.mark.slow
    def test_labels_out_of_range_are_named(self):
        for label in (-1, 10, 2**32 + 3):
            self.replace(samples.example(samples.png(), label))
            self.assert_named(4, f"label is not 0 to 9: {label}")

    @pytest.mark.slow
    def test_damaged_images_are_named(self):
        cut = samples.png()[:-30]
        for encoded, reason in ((b"", "empty"), (b"no image", "image"), (cut, "PNG")):
            self.replace(samples.example(encoded, 3))
            self.assert_named(4, reason)

    @pytest.mark.slow
    def test_records_other_than_examples_are_named(self):
        # TensorFlow quotes the record up to a zero byte.
        for record in (b"\xff\xff\xff", b"abc\0\x1b[2J", b"\xff\xfe\0"):
            self.replace(record)
            self.assert_named(4, "Could not parse example input")

    def test_errors_of_another_origin_pass_unchanged(self):
        # Training on synthetic images reads no folder.
        for error, folder in (
            (tf.errors.InvalidArgumentError(None, None, "of a network"), self.folder),
            (KeyError("x"), self.folder),
            (KeyError("x"), f"{self.folder}/none"),
        ):
            with (
                self.assertRaises(type(error)) as caught,
                slim_data.locate_corrupt_records("mnist", folder, "train"),
            ):
                raise error
            self.assertIs(caught.exception, error)

    def test_errors_that_the_files_do_not_explain_pass_unchanged(self):
        error = tf.errors.DataLossError(None, None, "of another file")
        self.assertIsNone(slim_data.locate_corrupt_record(error, self.paths, "mnist"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
