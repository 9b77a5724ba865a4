"""Writing shards: with several processes, after an interruption, on a full disk."""

import functools
import os
import signal
import subprocess
import sys
import time
from unittest import mock

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import slim_data
from slim_data.files.atomic import atomic_write
from slim_data.tfrecord import shards, writing
from tests.slim_data import generators, samples

SETTINGS = hypothesis.settings(deadline=None, max_examples=20, derandomize=True)
SIZE = 3100  # enough for three processes
FINGERPRINT = {"source": "numbers"}
PROGRAM = """
import functools, sys
from slim_data.tfrecord import shards
from slim_data.tfrecord import writing
from tests.slim_data import generators

if __name__ == "__main__":
    writing.EXAMPLES_PER_PROCESS = 1000
    paths = [f"{sys.argv[1]}/{name}" for name in shards.shard_names("train", 10)]
    generate = functools.partial(generators.slow, 0.002)
    writing.write_shards(generate, paths, 3100, fingerprint={"source": "numbers"}, num_processes=2)
"""


class WritingTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = samples.new_folder(self)
        # A few examples are enough to start several processes.
        patch = mock.patch.object(writing, "EXAMPLES_PER_PROCESS", 1000)
        patch.start()
        self.addCleanup(patch.stop)

    def paths(self, num_shards, folder=None):
        return [
            os.path.join(folder or self.folder, n) for n in shards.shard_names("train", num_shards)
        ]

    def write(self, generate=generators.numbered, num_shards=10, size=SIZE, folder=None, **options):
        options = {"fingerprint": FINGERPRINT, "num_processes": 1, **options}
        writing.write_shards(generate, self.paths(num_shards, folder), size, **options)

    def assert_refused(self, parts, *arguments, **options):
        with self.assertRaises(slim_data.DataError) as caught:
            self.write(*arguments, **options)
        self.assertNotIn("\n", str(caught.exception))
        for part in parts:
            self.assertIn(part, str(caught.exception))

    def assert_whole(self, num_shards=10, size=SIZE):
        found = [r.numpy() for r in tf.data.TFRecordDataset(self.paths(num_shards))]
        self.assertEqual(found, [generators.example(i) for i in range(size)])

    def assert_no_file_is_partial(self):
        """Checks that files are complete or absent, and that no other files remain."""
        names = [name for name in os.listdir(self.folder) if name != ".train.conversion.json"]
        self.assertContainsSubset(names, shards.shard_names("train", 10))
        for name in names:
            self.assertEqual(slim_data.verify([os.path.join(self.folder, name)]), SIZE // 10)

    def modified(self):
        names = [name for name in os.listdir(self.folder) if not name.startswith(".")]
        return {name: os.stat(os.path.join(self.folder, name)).st_mtime_ns for name in names}

    @SETTINGS
    @hypothesis.given(st.integers(0, 40), st.integers(1, 9))
    def test_written_records_are_read_back_and_counted(self, size, num_shards):
        self.folder = samples.new_folder(self)
        self.write(num_shards=num_shards, size=size)
        self.assert_whole(num_shards, size)
        found = slim_data.count_examples(self.paths(num_shards), up_to_faults=True)
        self.assertEqual(found, size)

    @pytest.mark.slow
    def test_one_and_three_processes_write_the_same_bytes(self):
        other = samples.new_folder(self)
        for num_processes, folder in ((1, self.folder), (3, other)):
            counts = []
            self.write(
                num_shards=7, num_processes=num_processes, folder=folder, progress=counts.append
            )
            self.assertEqual(counts, sorted(counts))
            self.assertEqual((counts[0], counts[-1]), (0, SIZE))
        self.assert_whole(num_shards=7)
        self.assertEqual(samples.contents(other), samples.contents(self.folder))

    def test_progress_starts_with_existing_files(self):
        self.write()
        counts = []
        os.remove(self.paths(10)[3])
        self.write(progress=counts.append)
        self.assertEqual((counts[0], counts[-1]), (SIZE - 310, SIZE))

    def test_missing_files_are_written_and_others_kept(self):
        self.write()
        before = self.modified()
        for i in (2, 3, 7):
            os.remove(self.paths(10)[i])
        os.truncate(self.paths(10)[9], 100)
        self.write()
        self.assert_whole()
        changed = [n for n, time_ in self.modified().items() if before[n] != time_]
        self.assertCountEqual(changed, [f"train-{i:05d}-of-00010" for i in (2, 3, 7, 9)])

    def test_another_conversion_is_refused(self):
        self.write()
        before = samples.contents(self.folder)
        for parts, options in (
            (
                ["another conversion", "source: 'numbers', now 'x'"],
                {"fingerprint": {"source": "x"}},
            ),
            (["seed: None, now 1"], {"fingerprint": {**FINGERPRINT, "seed": 1}}),
            (["num_examples: 3100, now 3000"], {"size": 3000}),
            (["train-00000-of-00010", "remove its train files"], {"num_shards": 9}),
        ):
            self.assert_refused(parts, **options)
        os.remove(os.path.join(self.folder, ".train.conversion.json"))
        self.assert_refused(["train files", "their source is not recorded"])
        del before[".train.conversion.json"]
        self.assertEqual(samples.contents(self.folder), before)

    def test_another_conversion_may_replace_a_removed_one(self):
        self.write()
        for path in self.paths(10):
            os.remove(path)
        self.write(num_shards=9, fingerprint={"source": "other"})
        self.assert_whole(num_shards=9)

    def test_a_file_of_another_size_is_refused(self):
        self.write()
        samples.write_records(self.paths(10)[4], [b"x"])
        self.assert_refused([self.paths(10)[4], "holds 1 examples and not the 310"])

    def test_a_source_of_another_size_leaves_the_set_incomplete(self):
        for end, part in ((SIZE - 1, "ends after 3099"), (SIZE + 1, "more than the 3100")):
            self.folder = samples.new_folder(self)
            self.assert_refused([part], functools.partial(generators.up_to, end))
            self.assertLen(self.modified(), 9)
            self.assert_no_file_is_partial()

    @pytest.mark.long
    def test_errors_in_a_process_are_raised_here(self):
        for error, kind in (
            (slim_data.DataError("record 2500 is damaged"), slim_data.DataError),
            (KeyError("bug"), RuntimeError),
        ):
            self.folder = samples.new_folder(self)
            generate = functools.partial(generators.failing_at, 2500, error)
            with self.assertRaisesRegex(kind, str(error)):
                self.write(generate, num_processes=2)
            self.assert_no_file_is_partial()

    @pytest.mark.slow
    def test_a_killed_process_ends_the_others_with_one_line(self):
        generate = functools.partial(generators.killed_at, 2500)
        self.assert_refused(["killed by signal 9, SIGKILL", "kept"], generate, num_processes=2)
        self.assertNotIn("train-00008-of-00010", self.modified())
        names = [n for n in os.listdir(self.folder) if n != ".train-00008-of-00010.partial"]
        self.assertContainsSubset(
            names, [".train.conversion.json", *shards.shard_names("train", 10)]
        )
        before = self.modified()
        self.assertNotEmpty(before)
        self.write()
        self.assert_whole()
        self.assertEqual({n: self.modified()[n] for n in before}, before)

    def start(self):
        """Starts a conversion in a new process and waits for its first files."""
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, self.folder],
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(self.modified()) < 2 and process.poll() is None:
            time.sleep(0.01)
        return process

    def wait_for_orphans(self):
        """Waits until no process holds a file's lock, which `atomic_write` would refuse."""
        for name in os.listdir(self.folder):
            if name.endswith(".partial"):
                for _ in range(500):
                    try:
                        with atomic_write(os.path.join(self.folder, name[1:-8])):
                            raise KeyError
                    except slim_data.DataError:
                        time.sleep(0.01)
                    except KeyError:
                        break
                else:
                    self.fail(f"{name} is still being written")

    @pytest.mark.slow
    def test_a_killed_conversion_resumes(self):
        with self.start() as process:
            process.kill()
        before = self.modified()
        self.assertBetween(len(before), 2, 9)
        for name in before:
            self.assertEqual(slim_data.verify([os.path.join(self.folder, name)]), 310)
        self.wait_for_orphans()
        self.write()
        self.assert_whole()
        self.assertEqual({n: self.modified()[n] for n in before}, before)

    @pytest.mark.slow
    def test_an_interrupted_conversion_leaves_no_partial_files(self):
        with self.start() as process:
            process.send_signal(signal.SIGINT)
            error = process.stderr.read()
        self.assertEqual(error.splitlines()[-1], "KeyboardInterrupt")
        self.assertEqual(error.count("Traceback"), 1)
        self.assert_no_file_is_partial()
        self.assertBetween(len(self.modified()), 2, 9)

    @pytest.mark.slow
    def test_a_full_disk_leaves_no_partial_file(self):
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", self.folder]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            self.skipTest("only root may mount a small file system")
        try:
            for num_processes in (2, 1):
                with self.assertRaises(OSError):
                    self.write(num_processes=num_processes)
                self.assert_no_file_is_partial()
                self.assertLess(len(self.modified()), 10)
        finally:
            subprocess.run(["umount", self.folder], check=True)

    def test_numbers_out_of_range_are_refused(self):
        self.assert_refused(["`num_processes` must be a positive integer"], num_processes=0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
