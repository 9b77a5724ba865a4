"""A folder holds one run, and none of its files is ever deleted."""

import errno
import json
import os
import pathlib
import sys
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.training import UserError
from terngrad_tf.training.storage import run_folder
from terngrad_tf.training.storage.run_folder import RunFolder

IDENTITY = {
    "batch_size": 8,
    "dataset_name": "digits",
    "dropout_keep_prob": 0.5,
    "image_size": 28,
    "net": "lenet",
    "num_nodes": 1,
    "optimizer": "adam",
    "seed": 1,
    "size_to_binarize": 1,
    "weight_decay": 0.0,
}
MODEL = {"net": "lenet", "num_classes": 10, "image_size": 28, "channels": 1}
RUN = {"identity": IDENTITY, "max_steps": 10, "model": MODEL}


class RunFolderTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.get_temp_dir()) / "deep" / "run"

    def claim(self, identity=None, **details):
        RunFolder(self.path, IDENTITY if identity is None else identity, **details).close()

    def contents(self):
        return {p.name: p.read_bytes() for p in self.path.iterdir() if p.name[0] != "."}

    def test_a_new_folder_takes_the_run(self):
        self.claim(max_steps=10, model=MODEL)
        self.assertEqual(run_folder.read_run(self.path), RUN)

    def test_the_same_run_is_resumed_and_its_details_are_renewed(self):
        self.claim(max_steps=10, model=MODEL)
        (self.path / "model.ckpt-10.index").write_text("weights")
        self.claim(max_steps=20, model=MODEL)
        self.assertEqual(run_folder.read_run(self.path)["max_steps"], 20)
        self.assertEqual(self.contents()["model.ckpt-10.index"], b"weights")

    def test_a_folder_whose_run_never_saved_takes_another_run_and_keeps_its_logs(self):
        self.claim(max_steps=10, model=MODEL)
        (self.path / "events.out.tfevents.1.host").write_text("events")
        self.claim(IDENTITY | {"seed": 2}, max_steps=10, model=MODEL)
        self.assertEqual(run_folder.read_run(self.path)["identity"]["seed"], 2)
        self.assertEqual(self.contents()["events.out.tfevents.1.host"], b"events")
        holder = RunFolder(self.path, IDENTITY)
        with self.assertRaisesRegex(UserError, "in use by another process"):
            self.claim(IDENTITY | {"seed": 2})
        holder.close()
        # Where no process can hold the folder, the run may be alive.
        with mock.patch("fcntl.flock", side_effect=OSError(errno.ENOSYS, "no locks")):
            with self.assertRaisesRegex(UserError, "seed: 1 there, 2 asked"):
                self.claim(IDENTITY | {"seed": 2})

    def test_another_run_is_refused_with_what_differs_and_nothing_changes(self):
        self.claim()
        (self.path / "model.ckpt-1.index").write_text("weights")
        before = self.contents()
        with self.assertRaisesRegex(UserError, "`train_dir` .*net: 'lenet' there, 'vgg' asked"):
            self.claim(IDENTITY | {"net": "vgg"})
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

    def test_a_description_of_the_wrong_shape_is_refused_by_the_field(self):
        self.path.mkdir(parents=True)
        for field, value in (
            ("model", None),
            ("model", 5),
            ("max_steps", "10"),
            ("model.net", "nonet"),
            ("model.net", ["lenet"]),
            ("model.image_size", 10**6),
            ("model.num_classes", 0),
            ("model.channels", True),
            ("identity.dataset_name", 5),
            ("identity.weight_decay", "x" * 10**5),
            ("identity.num_nodes", None),
            ("identity.label_smoothing", 2),
        ):
            run = json.loads(json.dumps(RUN))
            *sections, name = field.split(".")
            (run[sections[0]] if sections else run)[name] = value
            (self.path / "run.json").write_text(json.dumps(run))
            rule = rf"run.json is damaged: {field} is not .* Received: .{{1,250}}$"
            with self.assertRaisesRegex(UserError, rule):
                run_folder.read_run(self.path)
            del (run[sections[0]] if sections else run)[name]
            (self.path / "run.json").write_text(json.dumps(run))
            if field != "identity.label_smoothing":
                with self.assertRaisesRegex(UserError, f"run.json is incomplete: {field} is not"):
                    run_folder.read_run(self.path)

    def test_pipes_do_not_block_and_links_are_not_followed(self):
        self.path.mkdir(parents=True)
        os.mkfifo(self.path / "run.json")
        with self.assertRaisesRegex(UserError, "run.json must be a regular file"):
            run_folder.read_run(self.path)
        (self.path / "run.json").unlink()
        (self.path / ".lock").symlink_to(self.path.parent / "elsewhere")
        with self.assertRaisesRegex(UserError, "`train_dir` must be a folder .*symbolic"):
            self.claim()
        self.assertFalse((self.path.parent / "elsewhere").exists())

    def test_paths_that_hide_checkpoints_are_refused(self):
        for name, rule in (("a[1]", r"without \[ \], which"), ("a*", r"\*"), ("a\0", "zero bytes")):
            with self.assertRaisesRegex(UserError, f"`train_dir` must be a path .*{rule}"):
                RunFolder(self.path / name, IDENTITY)
        with self.assertRaisesRegex(UserError, r"must be text in UTF-8.*'.*\\udcff'"):
            RunFolder(str(self.path) + "\udcff", IDENTITY)
        self.assertFalse(self.path.exists())

    def test_two_processes_cannot_hold_one_folder(self):
        holder = RunFolder(self.path, IDENTITY)
        with self.assertRaisesRegex(UserError, "in use by another process"):
            self.claim()
        holder.close()
        self.claim()

    def test_a_folder_without_a_run_reads_as_none(self):
        self.assertIsNone(run_folder.read_run(self.path))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
