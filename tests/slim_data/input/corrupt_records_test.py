"""Skipping corrupt records: which and how many, and no effect on the other records."""

import json
import os
import sys

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from slim_data.files import file_cache
from slim_data.tfrecord import crc32c, record_files
from tests.slim_data import photos, samples

SIZES = (9, 12, 7)
NUM_EXAMPLES = sum(SIZES)


class CorruptRecordsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        samples.write_numbered(self.folder, SIZES)
        self.paths = slim_data.find_files("mnist", self.folder, "train")

    def replace(self, path, number, record):
        records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
        records[number] = record
        samples.write_records(path, records)

    def damage(self, kind, file, number):
        path = self.paths[file]
        offset = samples.record_offsets(path)[number]
        if kind == "data":
            samples.flip_bit(path, offset + 40)
        elif kind == "data checksum":
            samples.flip_bit(
                path, [*samples.record_offsets(path), os.path.getsize(path)][number + 1] - 1
            )
        elif kind == "length":
            samples.flip_bit(path, offset)
        elif kind == "length checksum":
            samples.flip_bit(path, offset + 9)
        elif kind == "cut":
            os.truncate(path, offset + 50)
        elif kind == "cut in a header":
            os.truncate(path, offset + 5)
        else:
            records = {
                "no example": b"\xff\xff\xff",
                "no image": samples.example(b"no image", 3),
                "no label": samples.example(samples.png(), None),
                "label": samples.example(samples.png(), 10),
                "size": samples.example(samples.png(size=27), 3),
            }
            self.replace(path, number, records[kind])

    def numbers(self, num_batches=None, training=False, batch_size=4, **options):
        options = {
            "shuffle_buffer": 8,
            "skip_corrupt_records": True,
            "repeat": training,
            **options,
        }
        stream = slim_data.load("mnist", self.folder, "train", batch_size, 28, training, **options)
        batches = stream if num_batches is None else stream.take(num_batches)
        return [samples.brightness(images) for images, _ in batches]

    def found(self):
        records = slim_data.corrupt_records("mnist", self.folder, "train")
        return [(self.paths.index(r.path), r.number, r.ends_file) for r in records]

    @pytest.mark.slow
    def test_valid_files_lose_no_records(self):
        self.assertEqual(self.found(), [])
        self.assertEqual(self.numbers(), self.numbers(skip_corrupt_records=False))
        train = dict(training=True, num_batches=14)
        self.assertEqual(self.numbers(**train), self.numbers(**train, skip_corrupt_records=False))

    @pytest.mark.long
    def test_each_kind_of_fault_is_skipped_alone(self):
        kinds = ("data", "data checksum", "no example", "no image", "no label", "label", "size")
        for kind in kinds:
            self.setUp()
            self.damage(kind, 1, 5)
            self.assertEqual(self.found(), [(1, 5, False)])
            expected = [n for n in range(NUM_EXAMPLES) if n != SIZES[0] + 5]
            self.assertCountEqual(sum(self.numbers(), []), expected)
            # 27 examples remain: nine batches of three an epoch.
            flat = sum(self.numbers(18, training=True, batch_size=3), [])
            self.assertCountEqual(flat[:27], expected)
            self.assertCountEqual(flat[27:], expected)

    def test_a_fault_of_the_framing_ends_its_file_alone(self):
        self.check_framing("length checksum")

    @pytest.mark.slow
    def test_other_faults_of_the_framing_end_their_file_alone(self):
        self.check_framing("length", "cut", "cut in a header")

    def check_framing(self, *kinds):
        for kind in kinds:
            self.setUp()
            self.damage(kind, 1, 5)
            self.assertEqual(self.found(), [(1, 5, True)])
            lost = range(SIZES[0] + 5, SIZES[0] + SIZES[1])
            expected = [n for n in range(NUM_EXAMPLES) if n not in lost]
            self.assertCountEqual(sum(self.numbers(), []), expected)
            flat = sum(self.numbers(14, training=True, batch_size=3), [])
            self.assertCountEqual(flat[:21], expected)
            self.assertCountEqual(flat[21:], expected)

    def damage_much(self):
        """Damages many records; returns the numbers of the remaining examples."""
        for kind, file, number in (
            ("no image", 0, 0),
            ("label", 0, 3),
            ("no image", 1, 2),
            ("no example", 1, 4),
            # TensorFlow would stop reading the files at any of these.
            ("data", 0, 1),
            ("data", 0, 8),
            ("data checksum", 1, 3),
            ("data", 1, 7),
            ("cut", 1, 10),
            ("length", 2, 0),
        ):
            self.damage(kind, file, number)
        return [2, 4, 5, 6, 7, *(SIZES[0] + n for n in (0, 1, 5, 6, 8, 9))]

    def test_many_faults_are_found_in_order(self):
        left = self.damage_much()
        expected = [(0, 0), (0, 1), (0, 3), (0, 8), (1, 2), (1, 3), (1, 4), (1, 7)]
        expected = [(*place, False) for place in expected] + [(1, 10, True), (2, 0, True)]
        self.assertEqual(self.found(), expected)
        self.assertCountEqual(sum(self.numbers(), []), left)

    @pytest.mark.slow
    def test_position_and_parts_are_as_exact_as_without_faults(self):
        left = self.damage_much()
        whole = self.numbers(20, training=True)
        for step in (2, 3, 9):
            rest = self.numbers(20 - step, training=True, start_step=step)
            self.assertEqual(rest, whole[step:])
        for num_pipelines in (2, 3):
            seen = []
            for i in range(num_pipelines):
                part = dict(num_input_pipelines=num_pipelines, input_pipeline_id=i)
                size = len(sum(self.numbers(**part), []))
                if size:
                    options = dict(training=True, batch_size=1, **part)
                    seen += sum(self.numbers(size, **options), [])
            self.assertCountEqual(seen, left)

    def test_each_record_and_their_number_are_logged(self):
        self.damage("data", 1, 5)
        self.damage("cut", 2, 3)
        with self.assertLogs("slim_data", "WARNING") as caught:
            self.numbers()
        first, second, last = (record.getMessage() for record in caught.records)
        reason = "the data does not match its checksum"
        self.assertEqual(first, f"skipped: {self.paths[1]}: record 5 (counted from 0): {reason}")
        self.assertStartsWith(second, f"skipped and all that follows in this file: {self.paths[2]}")
        self.assertEqual(last, "2 corrupt train records of mnist skipped")

    def test_without_the_option_faults_are_errors(self):
        self.damage("data", 1, 5)
        with self.assertRaisesRegex(tf.errors.DataLossError, "corrupted"):
            self.numbers(skip_corrupt_records=False)

    @pytest.mark.slow
    def test_photos(self):
        records = [photos.example(photos.jpeg(photos.pixels(9, 9)), n + 1) for n in range(6)]
        records[2] = photos.example(b"no image", 3)
        path = os.path.join(self.folder, "validation-00000-of-00001")
        samples.write_records(path, records)
        samples.flip_bit(path, samples.record_offsets(path)[4] + 100)
        (found,) = (
            slim_data.load(
                *("imagenet", self.folder, "validation", 9, 8, False), skip_corrupt_records=True
            )
            .map(lambda images, labels: labels)
            .as_numpy_iterator()
        )
        self.assertEqual(found.tolist(), [1, 2, 4, 6])

    def test_a_thousand_files_are_verified_and_the_faulty_one_named(self):
        folder = samples.new_folder(self)
        samples.write_numbered(folder, [1] * 200)
        paths = slim_data.find_files("mnist", folder, "train")
        # Links are enough, since opening files takes the time.
        for i in range(200, 1001):
            os.link(paths[i % 200], os.path.join(folder, f"link-{i}"))
            paths.append(os.path.join(folder, f"link-{i}"))
        self.assertEqual(slim_data.verify(paths, "mnist"), 1001)
        os.remove(paths[700])
        samples.write_records(paths[700], [samples.example(b"no image", 1)])
        with self.assertRaisesRegex(slim_data.DataError, f"{paths[700]}: record 0 "):
            slim_data.verify(paths, "mnist")


class ChecksumTest(tf.test.TestCase):
    def test_strings_of_any_lengths_have_their_own_checksums(self):
        generator = np.random.default_rng(0)
        lengths = np.array([5, 0, 17, 300, 17, 1])
        rows = generator.integers(0, 256, (6, 300), np.uint8)
        path = os.path.join(samples.new_folder(self), "records")
        samples.write_records(path, [rows[i, :n].tobytes() for i, n in enumerate(lengths)])
        with open(path, "rb") as file:
            data = file.read()
        offsets, found = record_files.record_extents(path)
        self.assertAllEqual(found, lengths)
        stored = [
            int.from_bytes(data[o + n : o + n + 4], "little")
            for o, n in zip(offsets, found, strict=True)
        ]
        self.assertEqual(crc32c.masked(rows, lengths).tolist(), stored)

    def test_damaged_records_are_found_in_any_chunks(self):
        path = os.path.join(samples.new_folder(self), "records")
        samples.write_records(path, [bytes([i]) * (i % 5 * 40) for i in range(50)])
        self.assertEqual(record_files.find_damaged_records(path), [])
        offsets, _ = record_files.record_extents(path)
        for number in (3, 24, 49):
            samples.flip_bit(path, offsets[number])
        self.assertEqual(record_files.find_damaged_records(path), [3, 24, 49])
        self.addCleanup(setattr, record_files, "_CHECKED_AT_ONCE", record_files._CHECKED_AT_ONCE)
        record_files._CHECKED_AT_ONCE = 1000
        self.assertEqual(record_files.find_damaged_records(path), [3, 24, 49])


class RememberedTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = samples.new_folder(self)
        self.folder = samples.new_folder(self)
        previous = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = self.cache
        self.addCleanup(
            lambda: (
                os.environ.pop("XDG_CACHE_HOME")
                if previous is None
                else os.environ.update(XDG_CACHE_HOME=previous)
            )
        )
        self.computed = []
        self.paths = [os.path.join(self.folder, name) for name in "abc"]
        for i, path in enumerate(self.paths):
            with open(path, "wb") as file:
                # A sparse file takes no disk space.
                file.truncate(file_cache.SMALLEST_SIZE // 2 + i)

    def values(self, kind="size", paths=None):
        def compute(paths):
            self.computed += paths
            return [[os.path.getsize(path), None] for path in paths]

        return file_cache.cached_values(kind, paths or self.paths, compute)

    def test_a_value_is_computed_once_for_each_large_file(self):
        expected = [[os.path.getsize(path), None] for path in self.paths]
        for _ in range(2):
            self.assertEqual(self.values(), expected)
        self.assertEqual(self.computed, self.paths)
        self.values("another kind")
        self.assertEqual(self.computed, 2 * self.paths)

    def test_a_changed_file_is_read_again(self):
        self.values()
        os.truncate(self.paths[1], file_cache.SMALLEST_SIZE)
        self.assertEqual(self.values()[1], [file_cache.SMALLEST_SIZE, None])
        self.assertEqual(self.computed, [*self.paths, self.paths[1]])
        os.utime(self.paths[2], ns=(1, 1))
        self.values()
        self.assertEqual(self.computed[4:], [self.paths[2]])

    def test_small_files_are_not_cached(self):
        os.truncate(self.paths[0], 5)
        for _ in range(2):
            self.assertEqual(self.values(paths=self.paths[:1]), [[5, None]])
        self.assertLen(self.computed, 2)
        self.assertEqual(os.listdir(self.cache), [])

    def test_a_damaged_or_forbidden_cache_is_ignored(self):
        self.values()
        (name,) = os.listdir(os.path.join(self.cache, "slim_data"))
        for content in ("", "{", "[1]", json.dumps({"x": 1})):
            with open(os.path.join(self.cache, "slim_data", name), "w", encoding="utf-8") as file:
                file.write(content)
            self.assertLen(self.values(), 3)
        self.assertLen(self.computed, 15)
        os.environ["XDG_CACHE_HOME"] = self.paths[0]  # not a folder
        self.assertLen(self.values(), 3)

    def test_a_missing_file_is_named(self):
        with self.assertRaisesRegex(slim_data.DataError, "No such file"):
            self.values(paths=[os.path.join(self.folder, "missing")])

    def test_counts_of_large_files_are_cached(self):
        samples.write_records(self.paths[0], [b"x" * 2**20] * 3)
        self.addCleanup(setattr, file_cache, "SMALLEST_SIZE", file_cache.SMALLEST_SIZE)
        file_cache.SMALLEST_SIZE = 2**20
        self.assertEqual(slim_data.count_examples(self.paths[:1]), 3)
        self.addCleanup(setattr, record_files, "_headers", record_files._headers)
        record_files._headers = None
        self.assertEqual(slim_data.count_examples(self.paths[:1]), 3)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
