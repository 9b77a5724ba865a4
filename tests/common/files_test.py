"""Files are replaced entirely or not at all, and synced where that is possible."""

import contextlib
import errno
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import pytest

from terngrad_tf.common import files


class ReplacingTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "run.json")

    def names(self):
        return sorted(os.listdir(self.path.parent))

    def test_readers_see_the_old_or_the_new_content(self):
        for content in ("one", "two"):
            with files.atomic_write(self.path) as beside:
                beside.write_text(content)
                self.assertEqual(self.path.exists(), content == "two")
            self.assertEqual(self.path.read_text(), content)
        self.assertEqual(self.names(), ["run.json"])

    def test_a_failure_leaves_the_old_content_alone(self):
        self.path.write_text("old")
        with self.assertRaises(KeyboardInterrupt), files.atomic_write(self.path) as beside:
            beside.write_text("half")
            raise KeyboardInterrupt
        self.assertEqual((self.path.read_text(), self.names()), ("old", ["run.json"]))

    def test_a_link_is_replaced_not_followed(self):
        target = self.path.with_name("precious")
        target.write_text("kept")
        self.path.symlink_to(target)
        with files.atomic_write(self.path) as beside:
            beside.write_text("new")
        self.assertEqual(target.read_text(), "kept")
        self.assertFalse(self.path.is_symlink())

    def test_the_new_file_has_the_mode_of_any_new_file(self):
        with files.atomic_write(self.path):
            pass
        other = self.path.with_name("other")
        other.touch()
        self.assertEqual(self.path.stat().st_mode, other.stat().st_mode)

    def test_names_may_be_as_long_as_the_file_system_takes(self):
        path = self.path.with_name("x" * 255)
        with files.atomic_write(path):
            pass
        self.assertTrue(path.exists())

    def test_file_systems_that_cannot_sync_a_folder_are_written_to(self):
        for number, fails in ((errno.EINVAL, False), (errno.EIO, True)):
            refusal = OSError(number, os.strerror(number))
            with mock.patch.object(os, "fsync", side_effect=refusal):
                with self.assertRaises(OSError) if fails else contextlib.nullcontext():
                    files.sync(self.path.parent)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
