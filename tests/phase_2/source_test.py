"""Where phase 2 finds its initial weights."""

import json
import os
import pathlib
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from matplotlib import figure

from terngrad_tf.phase_2 import phases, picture, source
from terngrad_tf.subspace import Subspace, save_snapshot
from terngrad_tf.training import UserError

MODEL = {"net": "resnet_50", "num_classes": 1001, "image_size": 224, "channels": 3}
IDENTITY = {
    **{"dataset_name": "imagenet", "net": "resnet_50", "optimizer": "momentum", "image_size": 224},
    **{"batch_size": 2048, "seed": 1, "num_nodes": 8, "size_to_binarize": 1},
    **{"weight_decay": 1e-4, "dropout_keep_prob": 0.5, "label_smoothing": 0.1},
}


class CheckpointOfEpochTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir())
        for step in (6256, 12512, 43790):
            (self.folder / f"model.ckpt-{step}.index").touch()
        self.describe(steps_per_epoch=625.5698)

    def describe(self, **details):
        run = {"identity": IDENTITY, "max_steps": 43790, "model": MODEL, **details}
        (self.folder / "run.json").write_text(json.dumps(run), encoding="utf-8")

    def find(self, name):
        return pathlib.Path(source.find_start(str(self.folder / name)).path).name

    def test_the_tutorials_name_is_the_checkpoint_of_that_epoch(self):
        self.assertEqual(self.find("resnet-70_625.ckpt"), "model.ckpt-43790")
        self.assertEqual(self.find("resnet-10_625.ckpt"), "model.ckpt-6256")

    def test_a_run_without_epochs_takes_those_of_the_name(self):
        self.describe()
        self.assertEqual(self.find("resnet-20_625.ckpt"), "model.ckpt-12512")

    def test_an_epoch_without_checkpoint_lists_those_with_one(self):
        there = r"model.ckpt-6256 \(epoch 10\), .*, model.ckpt-43790 \(epoch 70\)"
        with self.assertRaisesRegex(UserError, rf"holds {there}. Received: .*resnet-69_625"):
            self.find("resnet-69_625.ckpt")
        for path in self.folder.glob("*.index"):
            path.unlink()
        with self.assertRaisesRegex(UserError, "holds none"):
            self.find("resnet-70_625.ckpt")


class PhasesTest(tf.test.TestCase):
    def test_epochs_are_those_of_the_runs(self):
        # Not of the data that a worker of a cluster holds.
        folder = pathlib.Path(self.get_temp_dir())
        run = {"identity": IDENTITY, "max_steps": 8, "model": MODEL, "steps_per_epoch": 4.0}
        (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
        start = source.Start("model.ckpt-10", folder, run | {"steps_per_epoch": 2.5})
        config = types.SimpleNamespace(train_dir=folder)
        both = phases.Phases(types.SimpleNamespace(config=config, start=start))
        self.assertAllClose(list(both.before({5: "a", 10: "b", 15: "c"})), [2.0, 4.0])
        self.assertAllClose(list(both.after({0: "a", 6: "b"})), [4.0, 5.5])


class FindSnapshotsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.get_temp_dir())
        self.run_folder = pathlib.Path("device0_stage_1", "checkpoint_stage_1").absolute()
        self.run_folder.mkdir(parents=True, exist_ok=True)

    def find(self, weight_load_dir):
        start = source.Start("", self.run_folder, {})
        return os.path.abspath(source.find_snapshots(weight_load_dir, start))

    def test_a_relative_path_starts_at_the_working_folder_or_the_runs_parent(self):
        tutorial = "./checkpoint_stage_1/checkpoint_pca"
        own = self.run_folder / "checkpoint_pca"
        self.assertEqual(self.find(""), str(own))
        # A path that does not exist is returned unchanged.
        self.assertEqual(self.find(tutorial), os.path.abspath(tutorial))
        own.mkdir()
        self.assertEqual(self.find(tutorial), str(own))
        self.assertEqual(self.find(str(own)), str(own))
        self.assertEqual(self.find("/nowhere"), "/nowhere")
        os.makedirs(tutorial)
        self.assertEqual(self.find(tutorial), os.path.abspath(tutorial))


class AssignMeanTest(tf.test.TestCase):
    def test_a_matrix_alone_leaves_the_mean_to_the_snapshots(self):
        folder = pathlib.Path(self.get_temp_dir())
        network = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        for step in range(3):
            network.set_weights([np.full([4, 1], step**2), np.full([1], step)])
            save_snapshot(network, folder / "checkpoint_pca", step)
        fitted = Subspace.fit(folder / "checkpoint_pca", 1)
        fitted.save(folder / "pca.npy")
        start = source.Start("", folder, {})
        for subspace in (fitted, Subspace.load(folder / "pca.npy")):
            network.set_weights([np.zeros([4, 1]), np.zeros([1])])
            source.assign_mean("", start, subspace, network)
            self.assertAllClose(network.get_weights(), [np.full([4, 1], 5 / 3), np.ones([1])])
        with self.assertRaisesRegex(UserError, "start_at='mean', since .*pca.npy .*='/nowhere'"):
            source.assign_mean("/nowhere", start, subspace, network)


class PictureTest(tf.test.TestCase):
    def test_a_surface_without_logs_says_so(self):
        axes = figure.Figure().subplots()
        subspace = Subspace(np.eye(2, 5, dtype=np.float32))
        picture._draw_surface(axes, types.SimpleNamespace(subspace=subspace), {})
        self.assertEqual([text.get_text() for text in axes.texts], ["no logs of phase 2"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
