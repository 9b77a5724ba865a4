"""Converting a data set, as a function and as a program."""

import os
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import slim_data
from slim_data import shards
from tests.slim_data import samples

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
        return slim_data.convert("mnist", folder or self.folder, raw_dir=self.raw_dir, **arguments)

    def assert_refused(self, parts, name="mnist", **arguments):
        with self.assertRaises(slim_data.DataError) as caught:
            slim_data.convert(name, self.folder, **arguments)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def test_every_split_and_the_labels_are_written(self):
        files = self.convert(shard=True, train_shards=4)
        names = shards.names("train", 4) + ["test-00000-of-00001"]
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
            *("--shard", "True", "--train_shards", "3"),
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
        # The source may be gone by then.
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
        parts = ["already holds 23 train examples", "1437 of digits"]
        self.assert_refused(parts, name="digits", shard=True, train_shards=3)

    def test_options_without_effect_are_refused(self):
        self.assert_refused(["`raw_dir`", "digits"], name="digits", raw_dir=self.raw_dir)
        self.assert_refused(["`train_shards` needs shard=True"], train_shards=3)

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

    def test_a_killed_run_leaves_nothing_that_looks_whole(self):
        samples.write_mnist(self.raw_dir, num_train=30000)
        arguments = ["--dataset_name=mnist", "--shard", "True", "--train_shards", "16"]
        arguments += ["--raw_dir", self.raw_dir, "--dataset_dir", self.folder]
        with subprocess.Popen(
            samples.converter(*arguments), stderr=subprocess.DEVNULL, env=samples.environment()
        ) as process:
            while not shards.candidates(self.folder, "train") and process.poll() is None:
                time.sleep(0.005)
            process.kill()
        self.assertEqual(process.returncode, -9)
        finished = shards.candidates(self.folder, "train")
        self.assertBetween(len(finished), 1, 15)
        for path in finished:
            self.assertEqual(slim_data.verify([path], "mnist"), 1875)
        with self.assertRaisesRegex(slim_data.DataError, "must hold all 16 train files"):
            slim_data.load("mnist", self.folder, "train", 64, 28, training=True)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "labels.txt")))

        before = {path: os.stat(path).st_mtime_ns for path in finished}
        self.convert(shard=True, train_shards=16)
        self.assertEqual({path: os.stat(path).st_mtime_ns for path in before}, before)
        self.assertEqual(
            slim_data.verify(slim_data.find_files("mnist", self.folder, "train")), 30000
        )
        samples.write_mnist(self.raw_dir, num_train=160)
        parts = ["another conversion", "num_examples: 30000, now 160"]
        os.remove(finished[0])
        self.assert_refused(parts, raw_dir=self.raw_dir, shard=True, train_shards=16)


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

    def test_errors_are_one_line_and_a_status(self):
        folder = samples.new_folder(self)
        for arguments, part in (
            (["--dataset_name", "mnits", "--dataset_dir", folder], "must be one of digits, mnist"),
            (["--dataset_name", "mnist", "--dataset_dir", folder], "train-images-idx3-ubyte.gz"),
            (["--dataset_name", "digits"], "`dataset_dir`"),
            (["--dataset_dir", folder], "`dataset_name`"),
            (["--dataset_name", "digits", "--dataset_dir", folder, "stray"], "'stray'"),
        ):
            done = samples.run_converter(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertEqual(done.stdout, "")
            self.assertLen(done.stderr.splitlines(), 1)
            self.assertIn(part, done.stderr)
        self.assertEqual(os.listdir(folder), [])

    def test_help_explains_every_flag(self):
        text = samples.run_converter("--help").stdout
        for flag in ("dataset_name", "dataset_dir", "shard", "train_shards", "raw_dir"):
            self.assertIn(f"--{flag}" if flag != "shard" else "--[no]shard", text)


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
            env=samples.environment(),
            check=True,
        )
        self.assertEqual(done.stdout.strip(), "[]")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
