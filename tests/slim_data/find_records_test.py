"""The first use converts folders of photos to TFRecords."""

import os
import pathlib
import shutil
import sys
from unittest import mock

import pytest
import tensorflow as tf

import slim_data
from slim_data import DataError, find_records
from slim_data.datasets.sources import image_folders
from tests.slim_data import pictures, programs, samples


class FindRecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(samples.new_folder(self))
        for split, classes in (("train", "abc"), ("val", "ac")):
            for label in classes:
                for number in range(3):
                    pixels = pictures.pixels(40, 30, seed=number)
                    data = pictures.encode(pixels, "JPEG", "RGB")
                    pictures.write(str(self.root / split / label / f"{number}.JPEG"), data)

    def labels(self, folder, split):
        batches = slim_data.load("imagenet", folder, split, 1, 24, False)
        return sorted(int(label[0]) for _, label in batches)

    def test_classes_are_numbered_by_name_and_a_second_call_reads_no_image(self):
        found = find_records.find_records(str(self.root), num_processes=1)
        self.assertEqual(found, str(self.root / "tfrecords"))
        self.assertEqual(self.labels(found, "train"), [1, 1, 1, 2, 2, 2, 3, 3, 3])
        self.assertEqual(self.labels(found, "validation"), [1, 1, 1, 3, 3, 3])
        with mock.patch.object(image_folders, "find_images", side_effect=AssertionError):
            self.assertEqual(find_records.find_records(str(self.root)), found)
        # A folder of TFRecords is returned as it is.
        self.assertEqual(find_records.find_records(found), found)

    def test_a_conversion_that_was_interrupted_is_finished(self):
        found = find_records.find_records(str(self.root), num_processes=1)
        for last in (sorted(pathlib.Path(found).glob("train-*"))[-1].name, "labels.txt"):
            before = samples.contents(found)
            os.remove(os.path.join(found, last))
            self.assertEqual(find_records.find_records(str(self.root), num_processes=1), found)
            self.assertEqual(samples.contents(found), before)
        self.assertLen(self.labels(found, "train"), 9)

    def test_other_names_of_the_validation_folder_are_found(self):
        for name in find_records.VALIDATION_FOLDERS[1:]:
            other = self.root / name / "root"
            shutil.copytree(self.root / "train", other / "train")
            shutil.copytree(self.root / "val", other / name)
            find_records.find_records(str(other), num_processes=1)

    def test_invalid_folders_are_one_line(self):
        shutil.copytree(self.root / "val" / "a", self.root / "val" / "d")
        with self.assertRaisesRegex(DataError, "val holds a class that .*train does not: 'd'"):
            find_records.find_records(str(self.root))
        shutil.rmtree(self.root / "val")
        with self.assertRaisesRegex(DataError, "must hold a folder val or validation or"):
            find_records.find_records(str(self.root))
        for missing in (self.root / "train" / "a", self.root / "nowhere"):
            with self.assertRaisesRegex(DataError, "must hold train-.*Received: data_dir='/"):
                find_records.find_records(str(missing))

    def test_the_program_prints_only_the_folder(self):
        status, out, _ = programs.call("find_records", self.root)
        self.assertEqual((status, out), (0, f"{self.root}/tfrecords\n"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
