"""TFRecord files of any bytes are counted, or one line names file and record."""

import os
import sys
import tempfile

import numpy as np
import pytest

import slim_data
from slim_data import DataError
from slim_data.tfrecord import record_files
from tests.fuzz import fuzzing
from tests.slim_data import pictures, samples


def seeds(*files):
    """Returns TFRecord files, as bytes, that hold these records."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for i, records in enumerate(files):
            path = os.path.join(folder, str(i))
            samples.write_records(path, records)
            with open(path, "rb") as file:
                found.append(file.read())
    return found


class FramingTest(fuzzing.FuzzTest):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(samples.new_folder(self), "train-mnist.tfrecord")

    def test_files_are_counted_or_refused(self):
        def check(data):
            with open(self.path, "wb") as file:
                file.write(data)
            (found,) = record_files.scan_records([self.path])
            offsets, lengths = record_files.record_extents(self.path)
            self.assertEqual(len(offsets), found.num_records)
            self.assertLessEqual(int((offsets + lengths).max(initial=0)), len(data))
            record_files.find_damaged_records(self.path)
            try:
                self.assertEqual(record_files.count_examples([self.path]), found.num_records)
            except DataError as error:
                where = f"record {found.num_records} " if found.fault else "is empty"
                self.assert_clear(error, self.path, where)

        files = seeds([], [b""], [b"a" * 9] * 40, [samples.example(samples.png(), 1)] * 3)
        self.fuzz("framing of TFRecord files", fuzzing.mutated(files), check)

    def test_records_are_decoded_or_named(self):
        seeds = [
            samples.example(samples.png(), 1, **{"image/format": b"png"}),
            samples.example(pictures.encode(pictures.pixels(28, 28)), 9),
            samples.example(b"\0" * 784, 3, **{"image/format": b"RAW"}),
        ]
        before = samples.example(samples.png(), 1)

        def check(record):
            samples.write_records(self.path, [before, record])
            try:
                self.assertEqual(slim_data.verify([self.path], "mnist"), 2)
            except DataError as error:
                self.assert_clear(error, f"{self.path}: record 1 (counted from 0): ")

        self.fuzz("tf.Examples", fuzzing.mutated(seeds), check, num_cases=15)

    @pytest.mark.slow
    def test_records_that_are_decoded_can_be_trained_with(self):
        folder = os.path.dirname(self.path)

        def check(record):
            samples.write_records(self.path, [record])
            try:
                with slim_data.locate_corrupt_records("mnist", folder, "train"):
                    for images, labels in slim_data.load("mnist", folder, "train", 1, 28, False):
                        self.assertTrue(np.isfinite(images).all())
                        self.assertIn(int(labels[0]), range(10))
            except DataError as error:
                self.assert_clear(error, f"{self.path}: record 0 (counted from 0): ")

        seeds = [samples.example(samples.png(), 1), b"a\0b"]
        self.fuzz("records in a pipeline", fuzzing.mutated(seeds), check, num_cases=8)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
