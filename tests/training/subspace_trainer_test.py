"""Training in a subspace: starts, resumes, evaluates, and refuses what does not fit."""

import contextlib
import dataclasses
import io
import pathlib
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf import training
from terngrad_tf.subspace import Subspace
from terngrad_tf.training import final_evaluation, report, subspace_picture, subspace_source
from tests import runs


class SubspaceTrainerTest(tf.test.TestCase):
    """Phase 1 of a small network, then phase 2 from it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)
        cls.stage_1 = cls.root / "stage_1"
        with contextlib.redirect_stdout(io.StringIO()):
            training.train(
                training.TrainOptions(
                    train_dir=str(cls.stage_1),
                    data_dir=str(cls.root / "data"),
                    dataset_name="digits",
                    net="lenet",
                    image_size=8,
                    batch_size=120,
                    max_steps=24,
                    initial_learning_rate=0.02,
                    learning_rate_decay_type="fixed",
                    snapshot_every_steps=2,
                    save_iter=12,
                )
            )
        cls.result = cls.train("whole", epochs=2)

    @classmethod
    def options(cls, name, **changes):
        return training.SubspaceOptions(
            train_dir=str(cls.root / name),
            data_dir=str(cls.root / "data"),
            **{
                "pretrained_weight_path": str(cls.stage_1),
                "n_components": 5,
                "batch_size": 480,
                "num_nodes": 2,
                **changes,
            },
        )

    @classmethod
    def train(cls, name, **changes):
        with contextlib.redirect_stdout(io.StringIO()):
            return training.train_in_subspace(cls.options(name, **changes))

    def accuracy(self, result):
        with contextlib.redirect_stdout(io.StringIO()):
            return final_evaluation.evaluate(
                result.checkpoint,
                str(pathlib.Path(result.checkpoint).parent),
                str(self.root / "data"),
            )["top_1_accuracy"]

    def test_the_loss_falls_and_the_network_is_evaluated(self):
        losses = list(report.read_scalars(self.root / "whole")["total_loss"].values())
        self.assertLen(losses, 6)
        self.assertLess(losses[-1], losses[0])
        self.assertGreater(self.accuracy(self.result), 0.2)

    def test_what_workers_exchange_does_not_depend_on_the_size_of_the_network(self):
        scalars = report.read_scalars(self.root / "whole")
        for step, received in scalars["received_bytes"].items():
            # 5 coordinates, the loss, and the loss of each trial, summed over 2 workers.
            self.assertEqual(received, 4 * (6 + scalars["subspace/trials"][step]))

    def test_a_killed_run_goes_on_to_the_same_weights(self):
        self.train("parts", epochs=2)
        folder = self.root / "parts"
        first = str(folder / "model.ckpt-3")
        (folder / "checkpoint").write_text(
            'model_checkpoint_path: "model.ckpt-3"\nall_model_checkpoint_paths: "model.ckpt-3"\n'
        )
        for path in folder.glob("model.ckpt-6*"):
            path.unlink()
        self.assertFalse(runs.saved(first)["batch_norm_updated/.ATTRIBUTES/VARIABLE_VALUE"])
        one, two = (
            runs.saved(self.result.checkpoint),
            runs.saved(self.train("parts", epochs=2).checkpoint),
        )
        self.assertTrue(two["batch_norm_updated/.ATTRIBUTES/VARIABLE_VALUE"])
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertAllEqual(one[name], two[name], msg=name)

    def test_it_starts_from_a_snapshot_or_the_mean_and_a_given_subspace(self):
        matrix = self.root / "pca.npy"
        Subspace.fit(self.stage_1 / "checkpoint_pca", 3).save(matrix)
        snapshot = self.stage_1 / "checkpoint_pca" / "snapshot-0000000024.safetensors"
        result = self.train(
            "snapshot",
            pretrained_weight_path=str(snapshot),
            pca_mat_path=str(matrix),
            n_components=3,
            optimizer="sgd",
            learning_rate=0.05,
            epochs=1,
        )
        self.assertGreater(self.accuracy(result), 0.2)
        self.assertEqual(result.subspace.num_components, 3)
        self.assertLess(report.read_scalars(self.root / "snapshot")["learning_rate"][3], 0.05)
        self.assertFalse((self.root / "snapshot" / "subspace.safetensors").exists())
        mean = self.train("mean", start_at_mean=True, epochs=1, alpha=0.001, grad_bits=1)
        self.assertGreater(self.accuracy(mean), 0.2)

    def test_a_subspace_that_another_process_computes_is_waited_for_and_not_for_ever(self):
        path = self.root / "late.safetensors"
        options = self.options("late", pca_mat_path=str(path), timeout=0.1)
        start = subspace_source.find_start(options.pretrained_weight_path)
        with self.assertRaisesRegex(training.UserError, "must appear within `timeout` .*timeout=0"):
            subspace_source.find_subspace(options, start)
        fitted = Subspace.fit(self.stage_1 / "checkpoint_pca", 5)
        writer = threading.Timer(0.3, fitted.save, [path])
        writer.start()
        found = subspace_source.find_subspace(dataclasses.replace(options, timeout=60), start)
        writer.join()
        np.testing.assert_array_equal(found.components, fitted.components)

    def another_basis(self):
        """Path of a subspace of the same size as that of the first run."""
        path = self.root / "another.safetensors"
        snapshots = sorted((self.stage_1 / "checkpoint_pca").iterdir())
        Subspace.fit(snapshots[3:], 5).save(path)
        return path

    def test_what_does_not_fit_is_refused_in_one_line(self):
        (self.root / "lone").mkdir()
        for changes, pattern in (
            ({"pretrained_weight_path": ""}, "`pretrained_weight_path` must be .*=''"),
            ({"pretrained_weight_path": "/nowhere"}, "`pretrained_weight_path` must be .*/nowhere"),
            ({"weight_load_dir": "/nowhere"}, "`weight_load_dir` must be a folder .*/nowhere"),
            ({"n_components": 12}, "needs 13 snapshots or more. Received: 12 .*1 are missing"),
            ({"optimizer": "adam"}, "`optimizer` must be one of bfgs, sgd.*adam"),
            ({"rho": 1.5}, "`rho` must be in .*1.5"),
            ({"epochs": 0}, "`epochs` must be .*epochs=0"),
            ({"batch_size": 7}, "`batch_size` must be divisible .*num_nodes=2"),
            ({"dataset_name": "cifar10"}, "No train files|must"),
        ):
            with self.assertRaisesRegex((training.UserError, slim_data.DataError), pattern):
                self.train("refused", **changes)
        with self.assertRaisesRegex(training.UserError, "rho: 0.55 there, 0.5 asked for"):
            self.train("whole", rho=0.5)
        with self.assertRaisesRegex(training.UserError, "differs in subspace_fingerprint: "):
            self.train("whole", pca_mat_path=str(self.another_basis()))
        self.assertFalse((self.root / "refused").exists())

    def test_the_picture_is_drawn_from_the_logs_of_both_phases(self):
        with contextlib.redirect_stdout(io.StringIO()):
            path = subspace_picture.draw(self.options("whole"), self.result)
        self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(path.parent, self.root / "whole")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
