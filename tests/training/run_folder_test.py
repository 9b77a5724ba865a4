"""A folder holds one run, and nothing in it is ever deleted."""

import json
import pathlib
import sys

import pytest
import tensorflow as tf

from terngrad_tf.training import UserError, run_folder
from terngrad_tf.training.run_folder import RunFolder

IDENTITY = {"net": "lenet", "seed": 1}


class RunFolderTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.get_temp_dir()) / "deep" / "run"

    def claim(self, identity=None, **details):
        RunFolder(self.path, IDENTITY if identity is None else identity, **details).close()

    def contents(self):
        return {p.name: p.read_bytes() for p in self.path.iterdir() if p.name[0] != "."}

    def test_a_new_folder_takes_the_run(self):
        self.claim(max_steps=10)
        self.assertEqual(run_folder.read(self.path), {"identity": IDENTITY, "max_steps": 10})

    def test_the_same_run_is_resumed_and_its_details_are_renewed(self):
        self.claim(max_steps=10)
        (self.path / "model.ckpt-10.index").write_text("weights")
        self.claim(max_steps=20)
        self.assertEqual(run_folder.read(self.path)["max_steps"], 20)
        self.assertEqual(self.contents()["model.ckpt-10.index"], b"weights")

    def test_another_run_is_refused_with_what_differs_and_nothing_changes(self):
        self.claim()
        before = self.contents()
        with self.assertRaisesRegex(UserError, "`train_dir` .*net: 'lenet' there, 'vgg' asked"):
            self.claim({"net": "vgg", "seed": 1})
        self.assertEqual(self.contents(), before)

    def test_files_of_something_else_are_refused_and_stay(self):
        self.path.mkdir(parents=True)
        (self.path / "thesis.tex").write_text("dear")
        with self.assertRaisesRegex(UserError, "`train_dir` .* which holds 'thesis.tex'"):
            self.claim()
        self.assertEqual(self.contents(), {"thesis.tex": b"dear"})

    def test_a_path_that_cannot_be_a_folder_is_refused(self):
        self.path.parent.mkdir(parents=True)
        self.path.write_text("a file")
        with self.assertRaisesRegex(UserError, "`train_dir` must be a folder .*train_dir="):
            self.claim()
        with self.assertRaisesRegex(UserError, "`train_dir` must be a folder .*train_dir="):
            RunFolder(self.path / "inside", IDENTITY)

    def test_a_damaged_description_is_refused(self):
        self.claim()
        for text in ("{", "[]", json.dumps({"identity": 3})):
            (self.path / "run.json").write_text(text)
            with self.assertRaisesRegex(UserError, "run.json is damaged"):
                self.claim()

    def test_two_processes_cannot_hold_one_folder(self):
        holder = RunFolder(self.path, IDENTITY)
        with self.assertRaisesRegex(UserError, "in use by another process"):
            self.claim()
        holder.close()
        self.claim()

    def test_a_folder_without_a_run_reads_as_none(self):
        self.assertIsNone(run_folder.read(self.path))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
