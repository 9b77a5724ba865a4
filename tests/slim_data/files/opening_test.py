"""Reading a pipe does not block, and planted links are neither followed nor removed."""

import errno
import fcntl
import functools
import os
import pathlib
import sys
from unittest import mock

import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets import mnist
from slim_data.datasets.imagenet import bounding_boxes, records
from slim_data.datasets.sources import image_files, image_folders
from slim_data.files import archives, checksums, download, opening
from slim_data.files.atomic import atomic_directory, atomic_write, write_lines
from slim_data.tfrecord import record_files, writing
from tests.fuzz import fuzzing
from tests.slim_data import generators, samples, servers


class PipesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)

    def pipe(self, name="pipe"):
        path = os.path.join(self.folder, name)
        os.mkfifo(path)
        return path

    def assert_refused(self, read, path):
        with self.subTest(read=read), fuzzing.limited():
            with self.assertRaises(slim_data.DataError) as caught:
                read()
            self.assertIn(path, str(caught.exception))
            self.assertRegex(str(caught.exception), "(?i)not a regular file")

    def test_every_reader_of_a_file_refuses_a_pipe(self):
        path = self.pipe()

        def unpacked(opened):
            with opened(path):
                pass

        for read in (
            functools.partial(unpacked, archives.open_archive),
            functools.partial(unpacked, archives.open_plain_archive),
            functools.partial(archives.check_whole, path),
            functools.partial(bounding_boxes.read_boxes, path),
            functools.partial(checksums.sha256, path),
            functools.partial(record_files.total_size, [path]),
            functools.partial(slim_data.count_examples, [path]),
            functools.partial(slim_data.verify, [path]),
            functools.partial(image_files.read_image_file, path),
            functools.partial(image_folders.read_labels, path),
            functools.partial(records.read_names, path, []),
        ):
            self.assert_refused(read, path)

    def test_a_pipe_among_shards_is_refused(self):
        path = self.pipe("train-mnist.tfrecord")
        for skip in (False, True):
            self.assert_refused(
                lambda skip=skip: slim_data.load(
                    "mnist", self.folder, "train", 4, 28, True, skip_corrupt_records=skip
                ),
                path,
            )

    def test_pipes_among_official_files_are_refused(self):
        samples.write_mnist(self.folder)
        os.remove(os.path.join(self.folder, samples.MNIST_FILES["train"][1]))
        path = self.pipe(samples.MNIST_FILES["train"][1])
        with fuzzing.limited(), self.assertRaisesRegex(slim_data.DataError, os.path.basename(path)):
            mnist.Mnist(self.folder).num_examples("train")

    def test_devices_and_folders_are_refused(self):
        with self.assertRaisesRegex(slim_data.DataError, "/dev/zero: Not a regular file"):
            image_folders.read_labels("/dev/zero")
        with self.assertRaisesRegex(slim_data.DataError, "Is a directory"):
            checksums.sha256(self.folder)


class PlantedLinksTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.elsewhere = samples.new_folder(self)
        self.victim = os.path.join(self.elsewhere, "victim")
        with open(self.victim, "wb") as file:
            file.write(b"precious")

    def plants(self):
        """Returns {what: function that creates it at a path}."""
        return {
            "a link": functools.partial(os.symlink, self.victim),
            "a link to nowhere": functools.partial(os.symlink, f"{self.elsewhere}/new"),
            "a hard link": functools.partial(os.link, self.victim),
            "a pipe": os.mkfifo,
        }

    def assert_not_followed(self, write, name):
        """Checks that writing a file fails if something exists at its temporary name."""
        partial = os.path.join(self.folder, f".{name}.partial")
        for what, plant in self.plants().items():
            plant(partial)
            before = os.lstat(partial)
            with self.subTest(what=what), fuzzing.limited():
                with self.assertRaisesRegex(slim_data.DataError, "remove it") as caught:
                    write()
                self.assertIn(partial, str(caught.exception))
                self.assertEqual(os.lstat(partial).st_ino, before.st_ino)
                self.assertFalse(os.path.exists(os.path.join(self.folder, name)))
                self.assertEqual(samples.contents(self.elsewhere), {"victim": b"precious"})
            os.remove(partial)

    def test_shards_and_lists_are_not_written_through_links(self):
        def write():
            path = os.path.join(self.folder, "train-00000-of-00001")
            writing.write_shards(generators.numbered, [path], 3, fingerprint={})

        self.assert_not_followed(write, ".train.conversion.json")
        self.assert_not_followed(write, "train-00000-of-00001")
        write()

        def replace():
            with atomic_write(os.path.join(self.folder, "x")) as partial:
                with open(partial, "w", encoding="utf-8"):
                    pass

        self.assert_not_followed(replace, "x")

    def test_conversions_are_not_written_through_links(self):
        def convert():
            slim_data.convert("mnist", self.folder, raw_dir=raw_dir, allow_other_archives=True)

        raw_dir = samples.new_folder(self)
        samples.write_mnist(raw_dir)
        self.assert_not_followed(convert, "test-mnist.tfrecord")
        self.assert_not_followed(convert, "labels.txt")
        convert()

    def test_downloads_are_not_written_through_links(self):
        server = servers.Server({"x.gz": b"data"})
        self.addCleanup(server.close)
        file = download.File("x.gz", (server.url("x.gz"),), 4, "")
        self.assert_not_followed(lambda: download.fetch_file(file, self.folder, pauses=()), "x.gz")
        self.assertEqual(server.requests, [])

    def test_folders_are_not_made_through_links(self):
        os.symlink(self.elsewhere, os.path.join(self.folder, ".x.partial"))
        with self.assertRaises(NotADirectoryError):
            with atomic_directory(os.path.join(self.folder, "x")):
                pass
        self.assertEqual(samples.contents(self.elsewhere), {"victim": b"precious"})

    def test_leftovers_of_an_earlier_run_are_used(self):
        path = os.path.join(self.folder, "x")
        for content in (b"", b"left"):
            with open(os.path.join(self.folder, ".x.partial"), "wb") as file:
                file.write(content)
            with opening.partial_file(path) as file:
                file.seek(0)
                self.assertEqual(file.read(), content)


class LocksTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.path = os.path.join(self.folder, "x")

    def test_a_folder_is_written_by_one_process_at_a_time(self):
        with atomic_directory(self.path) as partial:
            pathlib.Path(partial, "first").touch()
            with self.assertRaisesRegex(slim_data.DataError, "another process is writing"):
                with atomic_directory(self.path):
                    pass
        self.assertEqual(os.listdir(self.folder), ["x"])
        self.assertEqual(os.listdir(self.path), ["first"])

    def test_a_folder_that_another_process_finished_before_the_lock_is_left_alone(self):
        lock = opening.lock

        def late(descriptor):
            lock(descriptor)
            os.rename(partial, self.path)
            if is_new:
                os.mkdir(partial)

        partial = os.path.join(self.folder, ".x.partial")
        for is_new in (False, True):
            with mock.patch.object(opening, "lock", late):
                with self.assertRaisesRegex(slim_data.DataError, "another process is writing"):
                    with atomic_directory(self.path):
                        pass
            self.assertEqual(os.path.isdir(partial), is_new)

    def test_leftovers_in_a_folder_are_removed(self):
        leftover = pathlib.Path(self.folder, ".x.partial", "old")
        leftover.mkdir(parents=True)
        (leftover / "file").touch()
        (leftover.parent / "link").symlink_to(self.folder)
        with atomic_directory(self.path) as partial:
            pathlib.Path(partial, "new").touch()
        self.assertEqual(os.listdir(self.folder), ["x"])
        self.assertEqual(os.listdir(self.path), ["new"])

    def test_file_systems_without_locks_are_written_to(self):
        refusal = OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        with mock.patch.object(fcntl, "flock", side_effect=refusal):
            with atomic_directory(self.path) as partial:
                write_lines(os.path.join(partial, "file"), ["line"])
        self.assertEqual(samples.contents(self.path), {"file": b"line\n"})


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
