"""Folders of links that divide the training files among workers."""

import os
import shutil
import sys

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import slim_data
from slim_data.tfrecord import shards
from tests.slim_data import programs, samples

SETTINGS = hypothesis.settings(deadline=None, max_examples=20, derandomize=True)


def read(folder):
    """Returns the numbers of the images that `load` reads from a folder's training files."""
    batches = slim_data.load("mnist", folder, "train", 4, 28, training=False, num_readers=1)
    return [n for images, _ in batches for n in samples.brightness(images)]


def names(folder):
    return sorted(os.listdir(folder))


class SplittingTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(samples.new_folder(self), "data")
        self.sizes = [3, 2, 4, 1, 5, 2, 3]
        samples.write_numbered(self.folder, self.sizes)

    def assert_refused(self, parts, function, *arguments):
        before = sorted(os.walk(self.folder))
        with self.assertRaises(slim_data.DataError) as caught:
            function(*arguments)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))
        self.assertEqual(sorted(os.walk(self.folder)), before)

    @SETTINGS
    @hypothesis.given(st.integers(1, 2000), st.data())
    def test_parts_are_contiguous_disjoint_and_even(self, num_files, data):
        num_workers = data.draw(st.integers(1, num_files))
        files = shards.shard_names("train", num_files)
        parts = [shards.worker_part(files, num_workers, i) for i in range(num_workers)]
        self.assertEqual(sum(parts, []), files)
        self.assertEqual([len(part) for part in parts], shards.spread(num_files, num_workers))

    def test_sixteen_workers_take_64_of_1024_files_each(self):
        part = shards.worker_part(shards.shard_names("train", 1024), 16, 1)
        self.assertLen(part, 64)
        self.assertEqual((part[0], part[-1]), ("train-00064-of-01024", "train-00127-of-01024"))

    def test_load_reads_exactly_the_linked_files(self):
        folder = slim_data.split_dataset(self.folder, 3, 1)
        self.assertEqual(folder, os.path.join(self.folder, "worker_1_of_3"))
        self.assertEqual(names(folder), shards.shard_names("train", 7)[2:4])
        self.assertTrue(all(os.path.islink(os.path.join(folder, n)) for n in names(folder)))
        self.assertEqual(read(folder), [5, 6, 7, 8, 9])
        self.assertEqual(read(folder + "/"), [5, 6, 7, 8, 9])
        stream = slim_data.load("mnist", folder, "train", 5, 28, training=True, repeat=True).take(2)
        for images, _ in stream:
            self.assertCountEqual(samples.brightness(images), [5, 6, 7, 8, 9])

    @pytest.mark.slow
    def test_all_workers_together_cover_each_record_once(self):
        for num_workers in (1, 2, 3, 7):
            folders = [
                slim_data.split_dataset(self.folder, num_workers, i) for i in range(num_workers)
            ]
            self.assertEqual(sum(map(read, folders), []), list(range(sum(self.sizes))))
        self.assertEqual(read(self.folder), list(range(sum(self.sizes))))

    def test_one_file_belongs_to_one_worker(self):
        folder = samples.new_folder(self)
        samples.write_records(
            os.path.join(folder, "train-mnist.tfrecord"), [samples.example(samples.png(9), 1)]
        )
        self.assertEqual(read(slim_data.split_dataset(folder, 1, 0)), [9])

    def test_links_outlive_a_move_and_are_found_through_links(self):
        slim_data.split_dataset(self.folder, 7, 6)
        moved = os.path.join(samples.new_folder(self), "moved")
        shutil.move(self.folder, moved)
        self.assertEqual(read(os.path.join(moved, "worker_6_of_7")), [17, 18, 19])
        os.symlink(os.path.join(moved, "worker_6_of_7"), os.path.join(moved, "mine"))
        self.assertEqual(read(os.path.join(moved, "mine")), [17, 18, 19])

    def test_an_existing_folder_is_kept_and_reported(self):
        lines = []
        folder = slim_data.split_dataset(self.folder, 3, 2, lines.append)
        status = os.stat(folder)
        self.assertEqual(slim_data.split_dataset(self.folder, 3, 2, lines.append), folder)
        self.assertEqual(os.stat(folder), status)
        self.assertEqual(
            lines,
            [
                f"Splitting to {folder} ...",
                "Linked 3 of 7 train files, train-00004-of-00007 to train-00006-of-00007 "
                "(workers take 2 or 3 files)",
                f"{folder} exists.",
            ],
        )

    def test_an_existing_folder_with_anything_else_is_refused(self):
        folder = slim_data.split_dataset(self.folder, 3, 1)
        os.remove(os.path.join(folder, "train-00003-of-00007"))
        parts = [folder, "2 train files", "train-00002-of-00007 to train-00003-of-00007"]
        self.assert_refused(parts, slim_data.split_dataset, self.folder, 3, 1)
        os.symlink("../absent", os.path.join(folder, "train-00003-of-00007"))
        self.assert_refused(parts, slim_data.split_dataset, self.folder, 3, 1)
        os.mkdir(os.path.join(self.folder, "worker_0_of_3"))
        self.assert_refused(["worker_0_of_3 exists"], slim_data.split_dataset, self.folder, 3, 0)

    def test_arguments_out_of_range_are_refused(self):
        for arguments, parts in (
            ((0, 0), ["`num_workers` must be a positive integer", "num_workers=0"]),
            ((2, -1), ["`worker_id` must be an integer of 0 or more", "worker_id=-1"]),
            ((2, 2), ["`worker_id` must be less than num_workers=2", "worker_id=2"]),
            ((8, 0), ["`num_workers` must be at most", "files, 7", "num_workers=8"]),
        ):
            self.assert_refused(parts, slim_data.split_dataset, self.folder, *arguments)
        absent = os.path.join(self.folder, "absent")
        self.assert_refused(["`data_dir`", absent], slim_data.split_dataset, absent, 2, 0)

    def test_a_part_cannot_be_split_again(self):
        folder = slim_data.split_dataset(self.folder, 3, 1)
        self.assert_refused(["all workers", folder], slim_data.split_dataset, folder, 2, 0)

    def test_a_missing_file_is_named_before_anything_is_made(self):
        os.remove(os.path.join(self.folder, "train-00005-of-00007"))
        self.assert_refused(["train-00005-of-00007"], slim_data.split_dataset, self.folder, 2, 0)

    def test_a_part_must_be_the_whole_part_and_no_more(self):
        folder = slim_data.split_dataset(self.folder, 3, 1)
        find = slim_data.find_files
        extra = os.path.join(folder, "train-00000-of-00007")
        os.symlink("../train-00000-of-00007", extra)
        parts = ["its 2 of 7 train files and no others", "train-00000-of-00007"]
        self.assert_refused(parts, find, "mnist", folder, "train")
        os.remove(extra)
        os.remove(os.path.join(folder, "train-00002-of-00007"))
        parts = ["its 2 of 7 train files", "without train-00002-of-00007"]
        self.assert_refused(parts, find, "mnist", folder, "train")

    def test_other_folders_must_hold_the_whole_set(self):
        source = slim_data.split_dataset(self.folder, 7, 3)
        for name in ("worker_3", "worker_7_of_7", "xworker_3_of_7", "worker_3_of_7x"):
            other = os.path.join(self.folder, name)
            shutil.copytree(source, other)
            self.assert_refused(["all 7 train"], slim_data.find_files, "mnist", other, "train")


class ProgramTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = samples.new_folder(self)
        self.folder = os.path.join(self.parent, "data")
        samples.write_numbered(self.folder, [2, 1, 3])
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.parent)

    def run_split(self, *arguments):
        return programs.call("split", *arguments)

    def test_it_runs_as_a_module(self):
        done = samples.run("slim_data.split", "data", 3, 0, folder=self.parent)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(read("data/worker_0_of_3"), [0, 1])

    def test_links_work_for_relative_and_absolute_folders(self):
        for data_dir, worker, numbers in (("data", 0, [0, 1]), (self.folder + "/", 1, [2])):
            done = self.run_split(data_dir, 3, worker)
            self.assertEqual((done.status, done.stderr), (0, ""))
            folder = os.path.join(data_dir, f"worker_{worker}_of_3")
            self.assertEqual(done.stdout.splitlines()[0], f"Splitting to {folder} ...")
            again = self.run_split(data_dir, 3, worker)
            self.assertEqual((again.status, again.stdout), (0, f"{folder} exists.\n"))
            self.assertEqual(read(os.path.join(self.parent, folder)), numbers)

    def test_all_makes_every_folder_and_links_named_after_the_files(self):
        for _ in range(2):  # the second time the folders exist
            done = self.run_split("data", 2, "all", "--link_as", "part")
            self.assertEqual((done.status, done.stderr), (0, ""))
            self.assertEqual(read(os.path.join(self.parent, "part-0-0")), [0, 1])
            self.assertEqual(read(os.path.join(self.parent, "part-1-2")), [2, 3, 4, 5])
        # For three workers, the first folder would have an existing name.
        done = self.run_split("data", 3, "all", "--link_as", "part")
        self.assertEqual(done.status, 2)
        self.assertIn("part-0-0 exists and is not", done.stderr)
        self.assertEqual(self.run_split("data", 3, "all").status, 0)

    def test_misuse_is_one_line_and_a_status(self):
        for arguments, part in (
            (["data", 3], "WORKER_ID"),
            (["data", 3, 0, 1], "unrecognized arguments: 1"),
            (["data", "three", 0], "WORKER_NUM"),
            (["data", 3, "some"], "WORKER_ID"),
            (["data", 3, 0, "--link_as", "x"], "`link_as` must be a path, given with"),
            (["data", 3, "all", "--link_as", ""], "`link_as` must be a path"),
            (["data", 3, -1], "worker_id=-1"),
            (["absent", 3, 0], "absent"),
        ):
            done = self.run_split(*arguments)
            self.assertEqual((done.status, done.stdout), (2, ""))
            self.assertLen(done.stderr.splitlines(), 1)
            self.assertIn(part, done.stderr)
        self.assertEqual(names(self.folder), shards.shard_names("train", 3))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
