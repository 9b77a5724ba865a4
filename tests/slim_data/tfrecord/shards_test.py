"""Naming, writing, finding and counting shards."""

import os
import sys

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import slim_data
from slim_data.files.atomic import atomic_write
from slim_data.tfrecord import crc32c, shards
from tests.slim_data import samples

SETTINGS = hypothesis.settings(deadline=None, max_examples=20, derandomize=True)


class ShardsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)

    def path(self, name):
        return os.path.join(self.folder, name)

    def touch(self, *names):
        for name in names:
            samples.write_records(self.path(name), [b"x"])

    def assert_data_error(self, parts, function, *arguments):
        with self.assertRaises(slim_data.DataError) as caught:
            function(*arguments)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))

    @SETTINGS
    @hypothesis.given(st.integers(0, 10**6), st.integers(1, 2000))
    def test_shards_differ_by_one_example_at_most(self, num_examples, num_shards):
        sizes = shards.spread(num_examples, num_shards)
        self.assertLen(sizes, num_shards)
        self.assertEqual(sum(sizes), num_examples)
        self.assertLessEqual(max(sizes) - min(sizes), 1)

    def test_names_are_those_other_readers_expect(self):
        self.assertEqual(
            shards.shard_names("test", 2), ["test-00000-of-00002", "test-00001-of-00002"]
        )
        self.assertEqual(shards.single_name("train", "mnist"), "train-mnist.tfrecord")

    def test_an_exception_leaves_what_was_there(self):
        path = self.path("train-mnist.tfrecord")
        with open(path, "w", encoding="utf-8") as file:
            file.write("before")
        with self.assertRaises(KeyboardInterrupt), atomic_write(path) as partial:
            with open(partial, "w", encoding="utf-8") as file:
                file.write("half")
            raise KeyboardInterrupt
        self.assertEqual(samples.contents(self.folder), {"train-mnist.tfrecord": b"before"})

    def test_two_writers_of_one_file_are_refused(self):
        path = self.path("train-mnist.tfrecord")
        with atomic_write(path):
            self.assert_data_error([path, "another process"], atomic_write(path).__enter__)
        self.assertEqual(os.listdir(self.folder), ["train-mnist.tfrecord"])

    def test_shards_are_found_in_order(self):
        names = shards.shard_names("train", 12)
        self.touch(*reversed(names), "test-mnist.tfrecord", "trainer-00000-of-00001")
        self.touch("train-images-idx3-ubyte.gz", ".train-00000-of-00012.partial")
        self.assertEqual(shards.find_shards(self.folder, "train"), [self.path(n) for n in names])
        found = slim_data.find_files("mnist", self.folder, "test")
        self.assertEqual(found, [self.path("test-mnist.tfrecord")])

    def test_a_missing_shard_is_named(self):
        names = shards.shard_names("train", 4)
        self.touch(*names[:2], names[3])
        self.assert_data_error(
            [names[2], "all 4"], slim_data.find_files, "mnist", self.folder, "train"
        )

    def test_many_missing_shards_are_counted(self):
        self.touch("train-00000-of-01000")
        parts = ["train-00001-of-01000", "and 996 more"]
        self.assert_data_error(parts, shards.find_shards, self.folder, "train")

    def test_a_name_with_an_absurd_number_of_shards_is_none_of_a_shard(self):
        self.touch("train-00000-of-999999999999")
        self.assertEqual(shards.find_shards(self.folder, "train"), [])

    def test_two_conversions_in_one_folder_are_refused(self):
        self.touch(*shards.shard_names("train", 2), "train-mnist.tfrecord")
        parts = ["one conversion", "train-00000-of-00002 and train-mnist.tfrecord"]
        self.assert_data_error(parts, shards.find_shards, self.folder, "train")
        os.remove(self.path("train-mnist.tfrecord"))
        self.touch(*shards.shard_names("train", 3))
        self.assert_data_error(["one conversion"], shards.find_shards, self.folder, "train")

    def test_missing_and_empty_folders_say_what_to_do(self):
        command = "slim_data.download_and_convert_data --dataset_name digits --dataset_dir"
        for folder in (self.folder, self.path("absent")):
            parts = [repr(folder), "train-?????-of-?????", "train-*.tfrecord", command]
            self.assert_data_error(parts, slim_data.find_files, "digits", folder, "train")

    def test_empty_files_are_refused(self):
        samples.write_records(self.path("test-mnist.tfrecord"), [])
        parts = ["empty", self.folder]
        self.assert_data_error(parts, slim_data.find_files, "mnist", self.folder, "test")

    def test_an_empty_file_among_others_is_refused_where_records_are_counted(self):
        first, second = (self.path(name) for name in shards.shard_names("train", 2))
        samples.write_records(first, [b"x"])
        samples.write_records(second, [])
        self.assert_data_error([f"{second} is empty"], slim_data.count_examples, [first, second])
        self.assertEqual(slim_data.count_examples([first, second], up_to_faults=True), 1)

    def test_links_to_nowhere_are_named(self):
        path = self.path("test-mnist.tfrecord")
        os.symlink(self.path("absent"), path)
        parts = [path, "No such file"]
        self.assert_data_error(parts, slim_data.find_files, "mnist", self.folder, "test")
        self.assert_data_error(parts, slim_data.count_examples, [path])

    def test_folders_in_place_of_files_are_named(self):
        path = self.path("test-mnist.tfrecord")
        os.mkdir(path)
        self.assert_data_error([path, "directory"], slim_data.count_examples, [path])

    def test_unknown_names_and_splits_list_the_known(self):
        self.assert_data_error(["digits, ", "'minst'"], slim_data.info, "minst")
        parts = ["`split`", "train, test", "'validation'"]
        self.assert_data_error(parts, slim_data.find_files, "mnist", self.folder, "validation")

    @SETTINGS
    @hypothesis.given(st.data())
    def test_counting_names_the_record_that_is_cut_or_has_a_wrong_length(self, data):
        sizes = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=8))
        path = self.path("x")
        samples.write_records(path, [b"r" * size for size in sizes])
        offsets = samples.record_offsets(path)
        wrong = data.draw(st.integers(0, len(sizes) - 1))
        if data.draw(st.booleans()):
            samples.flip_bit(path, offsets[wrong] + data.draw(st.integers(0, 11)))
        else:
            os.truncate(path, offsets[wrong] + data.draw(st.integers(1, 15 + sizes[wrong])))
        self.assert_data_error([f"{path}: record {wrong} "], slim_data.count_examples, [path])
        self.assert_data_error([f"{path}: record {wrong} "], slim_data.verify, [path])

    def test_checksums_are_castagnolis(self):
        row = np.frombuffer(b"123456789", np.uint8)
        crc = 0xE3069283  # check value of CRC-32C
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        self.assertEqual(crc32c.masked(np.stack([row, row])).tolist(), [masked, masked])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
