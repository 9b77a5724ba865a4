"""Converting a data set, as a function and as a program."""

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import time
from unittest import mock

import pytest
import tensorflow as tf

import slim_data
from slim_data.datasets import cifar10, flowers, mnist
from slim_data.input import validation
from slim_data.tfrecord import shards
from tests.slim_data import cifar10_archives, flower_photos, samples, servers

LABELS = "".join(
    f"{i}:{name}\n"
    for i, name in enumerate("zero one two three four five six seven eight nine".split())
).encode()


class ConversionTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.raw_dir = samples.new_folder(self)
        self.content = samples.write_mnist(self.raw_dir)

    def convert(self, folder=None, **arguments):
        arguments = {"allow_other_archives": True, **arguments}
        return slim_data.convert("mnist", folder or self.folder, raw_dir=self.raw_dir, **arguments)

    def assert_refused(self, parts, name="mnist", **arguments):
        with self.assertRaises(slim_data.DataError) as caught:
            slim_data.convert(name, self.folder, allow_other_archives=True, **arguments)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_every_split_and_the_labels_are_written(self):
        files = self.convert(shard=True, train_shards=4)
        names = shards.shard_names("train", 4) + ["test-00000-of-00001"]
        shown = [name for name in os.listdir(self.folder) if not name.startswith(".")]
        self.assertCountEqual(shown, [*names, "labels.txt"])
        self.assertEqual([os.path.basename(p) for p in files["train"] + files["test"]], names)
        self.assertEqual(samples.contents(self.folder)["labels.txt"], LABELS)
        sizes = [slim_data.count_examples([path]) for path in files["train"]]
        self.assertEqual(sizes, [5, 6, 6, 6])

    def test_the_same_source_gives_the_same_bytes(self):
        self.convert(shard=True, train_shards=3)
        other = samples.new_folder(self)
        done = samples.run_converter(
            *("--dataset_name", "mnist", "--raw_dir", self.raw_dir, "--dataset_dir", other),
            *("--shard", "True", "--train_shards", "3", "--allow_other_archives"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(samples.contents(other), samples.contents(self.folder))

    def test_sharding_changes_neither_records_nor_order(self):
        one = self.convert()["train"]
        many = self.convert(samples.new_folder(self), shard=True, train_shards=7)["train"]
        records = [list(tf.data.TFRecordDataset(f).as_numpy_iterator()) for f in (one, many)]
        self.assertEqual(records[0], records[1])

    def test_whole_files_are_kept(self):
        files = self.convert()
        before = {p: os.stat(p).st_ino for p in sum(files.values(), [])}
        lines = []
        self.assertEqual(self.convert(report=lines.append), files)
        self.assertEqual(lines, ["Dataset files already exist. Exiting without re-creating them."])
        self.assertEqual({p: os.stat(p).st_ino for p in before}, before)
        # The source is no longer needed.
        self.raw_dir = samples.new_folder(self)
        self.assertEqual(self.convert(), files)

    def test_missing_and_damaged_files_are_written_again(self):
        files = self.convert(shard=True, train_shards=3)
        whole = samples.contents(self.folder)
        os.truncate(files["train"][1], 100)
        os.remove(files["test"][0])
        lines = []
        self.convert(shard=True, train_shards=3, report=lines.append)
        self.assertIn(f"{files['train'][1]}: record 0", lines[0])
        self.assertEqual(samples.contents(self.folder), whole)

    def test_another_conversion_in_the_folder_is_refused(self):
        self.convert()
        parts = ["already holds train-mnist.tfrecord", repr(self.folder)]
        self.assert_refused(parts, raw_dir=self.raw_dir, shard=True)

    def test_another_data_set_in_the_folder_is_refused(self):
        self.convert(shard=True, train_shards=3)
        parts = ["already holds train files of another conversion (dataset: 'mnist', now 'digits')"]
        self.assert_refused(parts, name="digits", shard=True, train_shards=3)
        samples.write_mnist(self.raw_dir, seed=1)
        parts = ["already holds train files of another conversion (train-images-idx3-ubyte.gz: "]
        self.assert_refused(parts, raw_dir=self.raw_dir, shard=True, train_shards=3)

    def test_options_without_effect_are_refused(self):
        self.assert_refused(["`raw_dir`", "digits"], name="digits", raw_dir=self.raw_dir)
        self.assert_refused(["`train_shards` needs shard=True"], train_shards=3)
        self.assert_refused(["`source`", "digits"], name="digits", source="download")
        self.assert_refused(["`tfds_dir`", "without source='tfds'"], tfds_dir=self.folder)
        self.assert_refused(["`raw_dir`", "with source='tfds'"], source="tfds", raw_dir=".")
        self.assert_refused(["`tfds_dir`", "digits"], name="digits", tfds_dir=".")

    def test_values_out_of_range_are_refused(self):
        self.assert_refused(
            ["`source` must be one of download, files, tfds", "'web'"], source="web"
        )
        for number in (0, -1, 1.5):
            parts = ["`num_processes` must be a positive integer"]
            self.assert_refused(parts, raw_dir=self.raw_dir, num_processes=number)

    def test_imagenet_is_left_to_its_own_program(self):
        self.assert_refused(["python -m slim_data.build_imagenet_data"], name="imagenet")

    def test_a_full_disk_leaves_no_incomplete_file(self):
        samples.write_mnist(self.raw_dir, num_train=900)
        with samples.small_disk(self, 300) as folder:
            with self.assertRaisesRegex(slim_data.DataError, "No space left on device"):
                self.convert(folder, shard=True, train_shards=9)
            there = shards.find_candidates(folder, "train")
            self.assertBetween(len(there), 1, 8)
            self.assertEqual(slim_data.count_examples(there), 100 * len(there))
            with self.assertRaisesRegex(slim_data.DataError, "must hold all 9 train files"):
                slim_data.find_files("mnist", folder, "train")

    def test_shard_numbers_out_of_range_are_refused(self):
        for number in (0, -1, 24, 2.5):
            parts = ["`train_shards` must be", f"train_shards={number}"]
            self.assert_refused(parts, raw_dir=self.raw_dir, shard=True, train_shards=number)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_folder_that_cannot_be_made_is_refused(self):
        file = os.path.join(self.folder, "file")
        with open(file, "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(slim_data.DataError, "`dataset_dir` must be a folder"):
            self.convert(file)

    @pytest.mark.slow
    def test_a_killed_run_leaves_no_incomplete_file_and_is_resumed(self):
        samples.write_mnist(self.raw_dir, num_train=4000)
        arguments = ["--dataset_name=mnist", "--shard", "True", "--train_shards", "16"]
        arguments += ["--raw_dir", self.raw_dir, "--dataset_dir", self.folder]
        arguments += ["--num_processes", "2", "--allow_other_archives"]
        with subprocess.Popen(samples.converter(*arguments), stderr=subprocess.DEVNULL) as process:
            while not shards.find_candidates(self.folder, "train") and process.poll() is None:
                time.sleep(0.005)
            process.kill()
        self.assertEqual(process.returncode, -9)
        finished = shards.find_candidates(self.folder, "train")
        self.assertBetween(len(finished), 1, 15)
        for path in finished:
            self.assertEqual(slim_data.verify([path], "mnist"), 250)
        with self.assertRaisesRegex(slim_data.DataError, "must hold all 16 train files"):
            slim_data.load("mnist", self.folder, "train", 64, 28, training=True)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "labels.txt")))

        before = {path: os.stat(path).st_mtime_ns for path in finished}
        self.convert(shard=True, train_shards=16)
        self.assertEqual({path: os.stat(path).st_mtime_ns for path in before}, before)
        # The result depends neither on the interruption nor on the number of processes.
        other = samples.new_folder(self)
        self.convert(other, shard=True, train_shards=16)
        self.assertEqual(samples.contents(self.folder), samples.contents(other))
        samples.write_mnist(self.raw_dir, num_train=160)
        os.remove(finished[0])
        parts = ["another conversion"]
        self.assert_refused(parts, raw_dir=self.raw_dir, shard=True, train_shards=16)


class DownloadTest(tf.test.TestCase):
    """Converts files from a local server instead of the official one."""

    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        self.raw_dir = samples.new_folder(self)
        self.server = servers.Server({})
        self.addCleanup(self.server.close)

    def serve(self, source, folder):
        """Serves the files of a folder in place of a source's official files."""
        self.server.files = samples.contents(folder)
        official = tuple(
            dataclasses.replace(
                file,
                urls=(self.server.url(file.name),),
                size=len(self.server.files[file.name]),
                sha256=hashlib.sha256(self.server.files[file.name]).hexdigest(),
            )
            for file in source.downloads
        )
        patched = mock.patch.object(source, "downloads", official)
        patched.start()
        self.addCleanup(patched.stop)

    def test_missing_files_are_downloaded_and_stay(self):
        made = samples.new_folder(self)
        content = samples.write_mnist(made)
        self.serve(mnist.Mnist, made)
        mine = samples.MNIST_FILES["train"][0]
        shutil.copy(os.path.join(made, mine), self.raw_dir)
        self.server.faults = [servers.breaking_after(20)]
        lines = []
        files = slim_data.convert("mnist", self.folder, raw_dir=self.raw_dir, report=lines.append)
        self.assertEqual(samples.contents(self.raw_dir), samples.contents(made))
        for split, (images, labels) in content.items():
            records = samples.read(files[split])
            self.assertAllEqual([record["pixels"] for record in records], images[..., None])
            self.assertAllEqual([record["image/class/label"] for record in records], labels)
        asked = [name for name, _ in self.server.requests]
        self.assertNotIn(mine, asked)
        self.assertLen(set(asked), 3)
        self.assertLen([line for line in lines if "Downloading" in line], 3)

    def test_the_folder_of_the_shards_is_the_default(self):
        made = samples.new_folder(self)
        flower_photos.write(os.path.join(made, "flower_photos.tgz"), flower_photos.photos(60))
        self.serve(flowers.Flowers, made)
        slim_data.convert("flowers", self.folder)
        self.assertIn("flower_photos.tgz", os.listdir(self.folder))
        found = validation.validate("flowers", self.folder)
        self.assertEqual(
            {split: len(found[split]) for split in found}, {"train": 5, "validation": 5}
        )
        # A second call neither downloads nor writes.
        slim_data.convert("flowers", self.folder)
        self.assertLen(self.server.requests, 1)

    def test_either_archive_of_cifar10_avoids_the_download(self):
        made = samples.new_folder(self)
        for version in ("python", "binary"):
            encode = getattr(cifar10_archives, f"{version}_batch")
            cifar10_archives.write_archive(
                os.path.join(made, f"cifar-10-{version}.tar.gz"),
                [
                    cifar10_archives.entry(name, encode(*cifar10_archives.batch(i)))
                    for i, name in enumerate(cifar10_archives.names(version))
                ],
            )
        binary = os.path.join(made, "cifar-10-binary.tar.gz")
        shutil.move(binary, self.raw_dir)
        self.serve(cifar10.Cifar10, made)
        slim_data.convert("cifar10", self.folder, raw_dir=self.raw_dir, allow_other_archives=True)
        self.assertEqual(self.server.requests, [])
        other = samples.new_folder(self)
        slim_data.convert("cifar10", other)
        self.assertLen(self.server.requests, 1)
        for split in ("train", "test"):
            name = f"{split}-cifar10.tfrecord"
            self.assertEqual(samples.contents(other)[name], samples.contents(self.folder)[name])

    def test_a_wrong_checksum_leaves_nothing(self):
        made = samples.new_folder(self)
        samples.write_mnist(made)
        self.serve(mnist.Mnist, made)
        self.server.files = {name: b"x" * len(data) for name, data in self.server.files.items()}
        with self.assertRaisesRegex(slim_data.DataError, "cannot be downloaded.*SHA-256 must be"):
            slim_data.convert("mnist", self.folder, raw_dir=self.raw_dir)
        self.assertEqual(os.listdir(self.raw_dir) + os.listdir(self.folder), [])

    def test_without_downloads_missing_files_are_named(self):
        with self.assertRaisesRegex(slim_data.DataError, "without train-images-idx3-ubyte.gz"):
            slim_data.convert("mnist", self.folder, source="files")


class ProgramTest(tf.test.TestCase):
    def test_digits_are_converted_and_then_kept(self):
        folder = os.path.join(samples.new_folder(self), "new", "digits")
        arguments = ["--dataset_name", "digits", "--dataset_dir", folder]
        arguments += ["--shard", "True", "--train_shards", "4"]
        first, second = (samples.run_converter(*arguments) for _ in range(2))
        self.assertEqual((first.returncode, second.returncode), (0, 0), first.stderr)
        self.assertEqual(first.stdout.splitlines()[-1], "Finished converting the Digits dataset!")
        self.assertIn("already exist", second.stdout.splitlines()[-1])
        self.assertLen(slim_data.find_files("digits", folder, "train"), 4)

    @pytest.mark.slow
    def test_errors_are_one_line_and_a_status(self):
        folder = samples.new_folder(self)
        for arguments, part in (
            (["--dataset_name", "mnits", "--dataset_dir", folder], "must be one of digits,"),
            (
                ["--dataset_name", "mnist", "--dataset_dir", folder, "--source", "files"],
                "train-images-idx3-ubyte.gz",
            ),
            (["--dataset_name", "imagenet", "--dataset_dir", folder], "build_imagenet_data"),
            (["--dataset_name", "digits"], "--dataset_dir"),
            (["--dataset_dir", folder], "--dataset_name"),
            (["--dataset_name", "digits", "--dataset_dir", folder, "stray"], "stray"),
            (["--dataset_name", "digits", "--dataset_dir", folder, "--shard", "maybe"], "'maybe'"),
        ):
            done = samples.run_converter(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stdout, "")
            self.assertLen(done.stderr.splitlines(), 1)
            self.assertIn(part, done.stderr)
        self.assertEqual(os.listdir(folder), [])

    def test_help_explains_every_flag(self):
        text = samples.run_converter("--help").stdout
        for flag in (
            *("dataset_name", "dataset_dir", "shard", "train_shards"),
            *("source", "raw_dir", "tfds_dir", "num_processes", "labels", "allow_other_archives"),
        ):
            self.assertIn(f"--{flag}", text)


class ImportTest(tf.test.TestCase):
    def test_importing_the_package_imports_neither_keras_nor_tensorflow(self):
        program = (
            "import sys, slim_data, slim_data.download_and_convert_data; "
            "print([m for m in ('keras', 'tensorflow', 'sklearn') if m in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(done.stdout.strip(), "[]")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
