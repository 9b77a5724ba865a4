"""Training in a subspace: starts, resumes, evaluates, and refuses invalid input."""

import contextlib
import io
import pathlib
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl import flags as absl_flags

import slim_data
from terngrad_tf import phase_2, training
from terngrad_tf.bin import average_snapshots, subspace_train
from terngrad_tf.phase_2 import phases, picture
from terngrad_tf.subspace import Subspace
from terngrad_tf.subspace.weights.snapshot_files import open_snapshot
from terngrad_tf.training.evaluation import evaluator, final_evaluation
from terngrad_tf.training.logs import report
from terngrad_tf.training.storage import run_folder
from tests import runs
from tests.distribute import processes

PROGRAM = subspace_train.__file__


class SubspaceTrainerTest(tf.test.TestCase):
    """Runs phase 1 of a small network, then phase 2."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)
        cls.stage_1 = cls.root / "stage_1"
        with contextlib.redirect_stdout(io.StringIO()):
            training.train(
                training.TrainConfig.of(
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
        return phase_2.SubspaceConfig.of(
            train_dir=str(cls.root / name),
            data_dir=str(cls.root / "data"),
            **{
                "pretrained_weight_path": str(cls.stage_1),
                "n_components": 5,
                "batch_size": 480,
                "alpha": 0.0,
                "num_nodes": 2,
                **changes,
            },
        )

    @classmethod
    def train(cls, name, **changes):
        with contextlib.redirect_stdout(io.StringIO()):
            return phase_2.train_in_subspace(cls.options(name, **changes))

    def accuracy(self, result):
        with contextlib.redirect_stdout(io.StringIO()):
            return final_evaluation.evaluate(
                result.checkpoint,
                str(pathlib.Path(result.checkpoint).parent),
                str(self.root / "data"),
            )["top_1_accuracy"]

    def test_the_loss_falls_and_the_network_is_evaluated(self):
        curve = report.read_scalars(self.root / "whole")["loss/total"]
        # In TensorBoard, phase 2 continues the steps of phase 1.
        self.assertEqual(list(curve), list(range(25, 31)))
        losses = list(curve.values())
        self.assertLess(losses[-1], losses[0])
        accuracy = self.accuracy(self.result)
        self.assertGreater(accuracy, 0.2)
        evaluated = report.read_scalars(self.root / "whole" / "eval")["accuracy/precision_at_1"]
        self.assertAllClose(evaluated, {30: accuracy})

    def test_traffic_does_not_depend_on_the_size_of_the_network(self):
        scalars = report.read_scalars(self.root / "whole")
        for step, received in scalars["traffic/received_bytes"].items():
            # Two workers sum 5 coordinates, the loss, and the loss of each trial.
            self.assertEqual(received, 4 * (6 + scalars["subspace/trials"][step]))

    @pytest.mark.slow
    def test_a_killed_run_resumes_to_the_same_weights(self):
        self.train("parts", epochs=2)
        folder = self.root / "parts"
        first = str(folder / "model.ckpt-3")
        self.rewind(folder)
        self.assertFalse(runs.saved(first)["batch_norm_updated/.ATTRIBUTES/VARIABLE_VALUE"])
        one, two = (
            runs.saved(self.result.checkpoint),
            runs.saved(self.train("parts", epochs=2).checkpoint),
        )
        self.assertTrue(two["batch_norm_updated/.ATTRIBUTES/VARIABLE_VALUE"])
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertAllEqual(one[name], two[name], msg=name)

    def rewind(self, folder):
        """Restores a run of two epochs to the end of its first epoch."""
        (folder / "checkpoint").write_text(
            'model_checkpoint_path: "model.ckpt-3"\nall_model_checkpoint_paths: "model.ckpt-3"\n'
        )
        for path in folder.glob("model.ckpt-6*"):
            path.unlink()

    @pytest.mark.long
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
            alpha=0.001,  # the default, which only bfgs allows to differ
            epochs=1,
        )
        self.assertGreater(self.accuracy(result), 0.2)
        self.assertEqual(result.subspace.num_components, 3)
        rates = report.read_scalars(self.root / "snapshot")["optimizer/learning_rate"]
        self.assertBetween(rates[24 + 3], 1e-6, 0.02)  # from phase 1's rate to 0
        self.assertFalse((self.root / "snapshot" / "subspace.safetensors").exists())
        mean = self.train("mean", start_at="mean", epochs=1, alpha=0.001, grad_bits=1)
        self.assertGreater(self.accuracy(mean), 0.2)
        with self.assertRaisesRegex(
            training.UserError, "`start_at` must be last or mean .*-0000000024"
        ):
            self.train("refused", pretrained_weight_path=str(snapshot), start_at="average")

    def start_of(self, average):
        """Returns the final weights of phase 1."""
        path = str(self.stage_1 / "model.ckpt-24")
        model, _ = evaluator.restore_network(path, run_folder.read_run(self.stage_1), average)
        return model.get_weights()

    def weights_of(self, result):
        """Returns the final weights of a run."""
        folder = pathlib.Path(result.checkpoint).parent
        model, _ = evaluator.restore_network(
            result.checkpoint, run_folder.read_run(folder), restore_avg_var=False
        )
        return model.get_weights()

    @pytest.mark.long
    def test_zero_epochs_keep_the_moving_average_or_the_last_weights(self):
        average = self.train("no_epoch", epochs=0)
        again = self.train("no_epoch", epochs=0)
        self.assertEqual((average.step, again.checkpoint), (0, average.checkpoint))
        sgd = {"optimizer": "sgd", "alpha": 0.001}  # the default, which only bfgs allows to differ
        last = self.train("no_epoch_last", epochs=0, start_at="last", **sgd)
        for result, of_average in ((average, True), (last, False)):
            for one, other in zip(self.weights_of(result), self.start_of(of_average), strict=True):
                self.assertAllEqual(one, other)
            with contextlib.redirect_stdout(io.StringIO()):
                evaluated = phases.evaluate_phases(result)
                self.assertTrue(picture.draw(result, evaluated).is_file())
            rows = {name: figures for name, *figures in phases.table_rows(evaluated)}
            source = phases.PHASE_1_AVERAGE if of_average else phases.PHASE_1
            self.assertEqual(rows[phases.PHASE_2], rows[source])
        self.assertNotEqual(rows[phases.PHASE_1], rows[phases.PHASE_1_AVERAGE])
        with self.assertRaisesRegex(training.UserError, "start_at: 'average' there, 'last' asked"):
            self.train("no_epoch", epochs=0, start_at="last")

    @pytest.mark.slow
    def test_fewer_snapshots_than_33_give_fewer_components_and_a_message(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = phase_2.train_in_subspace(self.options("few", n_components=None, epochs=0))
        self.assertEqual(result.subspace.num_components, 11)
        self.assertRegex(printed.getvalue(), "12 snapshots in .*: 11 components instead of 32\n")

    @pytest.mark.slow
    def test_a_missing_file_of_the_subspace_is_computed_from_the_snapshots_or_refused(self):
        path = self.root / "computed.npy"
        result = self.train("computed", pca_mat_path=str(path), epochs=1)
        np.testing.assert_array_equal(np.load(path), result.subspace.components)
        lone = self.root / "lone"
        lone.mkdir()
        for file in [self.stage_1 / "run.json", *self.stage_1.glob("model.ckpt-24*")]:
            (lone / file.name).write_bytes(file.read_bytes())
        weights = {"pretrained_weight_path": str(lone / "model.ckpt-24")}
        with self.assertRaisesRegex(
            training.UserError, "`pca_mat_path` must be a file, or `weight_load_dir` .*no.npy"
        ):
            self.train("refused", pca_mat_path=str(self.root / "no.npy"), **weights)

    def test_a_file_of_the_subspace_that_cannot_be_written_is_refused_before_the_run(self):
        for path, words in (("/proc/x.npy", "cannot be written"), ("x.txt", "must end in .npy")):
            with self.assertRaisesRegex(training.UserError, f"`pca_mat_path` {words}.*={path!r}"):
                self.train("unwritable", pca_mat_path=path, epochs=1)
        self.assertFalse((self.root / "unwritable").exists())

    @pytest.mark.long
    def test_the_program_that_averages_snapshots_leaves_a_run_that_is_evaluated(self):
        def call(*more):
            out = io.StringIO()
            folders = (f"--pretrained_weight_path={self.stage_1}", f"--data_dir={self.root}/data")
            arguments = ["average_snapshots", *folders, f"--train_dir={self.root}/average", *more]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                return average_snapshots.main(arguments), out.getvalue()

        status, out = call("--num_snapshots=3")
        self.assertEqual(status, 0, out)
        for weights in ("last weights", "moving average", "mean of 3 snapshots"):
            self.assertRegex(out, rf"\n{weights} +\d+\.\d\d % +\d+\.\d\d %\n")
        run = run_folder.read_run(self.root / "average")
        path = str(self.root / "average" / "model.ckpt-0")
        model, _ = evaluator.restore_network(path, run, restore_avg_var=True)
        files = sorted((self.stage_1 / "checkpoint_pca").iterdir())[-3:]
        means = [
            np.mean(arrays, axis=0)
            for arrays in zip(*(open_snapshot(file).read() for file in files), strict=True)
        ]
        for variable, mean in zip(model.trainable_variables, means, strict=True):
            self.assertAllClose(variable, mean, rtol=1e-6, atol=1e-7)
        self.assertEqual(call("--num_snapshots=3")[0], 0)
        for wrong, pattern in (
            ("--num_snapshots=4", "snapshots: "),
            ("--num_snapshots=13", "`num_snapshots` must be at most the 12 .*=13"),
            ("--weight_load_dir=/none", "`weight_load_dir` must be a folder .*'/none'"),
        ):
            status, out = call(wrong)
            self.assertEqual(status, 2, out)
            self.assertRegex(out, pattern)

    def test_the_program_looks_for_the_records_to_evaluate_on_before_it_trains(self):
        data = self.root / "only_train"
        data.mkdir()
        for file in (self.root / "data").glob("train-*"):
            (data / file.name).write_bytes(file.read_bytes())

        def call(name, *more):
            out, folder = io.StringIO(), self.root / name
            arguments = [f"--pretrained_weight_path={self.stage_1}", f"--train_dir={folder}"]
            arguments += [f"--data_dir={data}", "--alpha=0", "--epochs=0", *more]
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                return subspace_train.main(["subspace_train", *arguments]), out.getvalue(), folder

        for subset, rule in (("x", "`eval_subset` must be one of"), ("test", "No test files")):
            status, out, folder = call("not_evaluated", f"--eval_subset={subset}")
            self.assertEqual(status, 2)
            self.assertIn(f"subspace_train: error: {rule}", out)
            self.assertFalse(folder.exists())
        status, out, folder = call("not_evaluated")
        self.assertEqual(status, 0, out)
        self.assertIn("no evaluation at the end: No test files of digits", out)
        self.assertTrue((folder / "subspace.png").is_file())

    def another_basis(self):
        """Returns the path of another subspace of the same size."""
        path = self.root / "another.safetensors"
        snapshots = sorted((self.stage_1 / "checkpoint_pca").iterdir())
        Subspace.fit(snapshots[3:], 5).save(path)
        return path

    @pytest.mark.slow
    def test_invalid_input_is_refused_in_one_line(self):
        for changes, pattern in (
            ({"pretrained_weight_path": ""}, "`pretrained_weight_path` must be .*=''"),
            ({"pretrained_weight_path": "/nowhere"}, "`pretrained_weight_path` must be .*/nowhere"),
            ({"weight_load_dir": "/nowhere"}, "`weight_load_dir` must be a folder .*/nowhere"),
            (
                {"n_components": 12},
                "`n_components`=12 needs 13 snapshots or more. Received: 12 .*1 are missing",
            ),
            ({"optimizer": "adam"}, "`optimizer` must be one of bfgs, sgd.*adam"),
            ({"rho": 1.5}, "`rho` must be a number .*=1.5"),
            ({"optimizer": "sgd", "rho": 0.5}, "`rho` must not .*=sgd; it is for bfgs.*rho=0.5"),
            ({"momentum": 0.5}, "`momentum` must not be given with optimizer=bfgs; .* sgd"),
            ({"alpha": 0, "residual_every": 2}, "`residual_every` must not be given with alpha=0"),
            ({"grad_bits": 4}, "`grad_bits` must not be given without steps outside .*=4"),
            ({"epochs": -1}, "`epochs` must be .*epochs=-1"),
            ({"batch_size": 7}, "`batch_size` must be divisible .*num_nodes=2"),
            ({"dataset_name": "cifar10"}, "No train files|must"),
        ):
            with self.assertRaisesRegex((training.UserError, slim_data.DataError), pattern):
                self.train("refused", **changes)
        with self.assertRaisesRegex(training.UserError, "rho: 0.55 there, 0.5 asked for"):
            self.train("whole", rho=0.5)
        described = (self.root / "whole" / "run.json").read_text()
        with self.assertRaisesRegex(
            training.UserError,
            "alpha: 0.0 there, .*bits_per_element: None there, .*quantize_logits: .*; round",
        ):
            rounded = {"bits_per_element": 0.3, "quantize_logits": True, "rounding": "independent"}
            self.train("whole", alpha=0.1, **rounded)
        self.assertEqual((self.root / "whole" / "run.json").read_text(), described)
        with self.assertRaisesRegex(training.UserError, "differs in subspace_fingerprint: "):
            self.train("whole", pca_mat_path=str(self.another_basis()))
        self.assertFalse((self.root / "refused").exists())

    def run_on_two_hosts(self, name, **changes):
        """Runs the program on two hosts; the second host has only the data.

        Returns:
            Exit statuses and outputs.
        """
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
        known = absl_flags.FlagValues()
        subspace_train.define_flags(known)
        values = self.options(name, num_nodes=1, **changes).values()
        options = {flag: value for flag, value in values.items() if flag in known}
        started = []
        for index in range(2):
            if index:
                folders = ("train_dir", "pretrained_weight_path", "weight_load_dir")
                options |= {folder: f"/nowhere/{folder}" for folder in folders}
            given = [f"--{k}={v}" for k, v in options.items() if v is not None]
            started.append(processes.start(PROGRAM, addresses, index, given))
        outputs = processes.outputs(started, 120)
        return [process.returncode for process in started], outputs

    @pytest.mark.long
    def test_two_hosts_train_and_resume_to_the_same_weights_after_a_kill(self):
        outside = {"alpha": 0.001, "residual_every": 2, "grad_bits": 1, "shard_basis": True}
        checkpoints = []
        for name in ("cluster", "cluster_parts"):
            folder = self.root / name
            if checkpoints:
                shutil.copytree(self.root / "cluster", folder)
                self.rewind(folder)
            statuses, outputs = self.run_on_two_hosts(name, epochs=2, **outside)
            self.assertEqual(statuses, [0, 0], outputs)
            checkpoints.append(runs.saved(folder / "model.ckpt-6"))
        self.assertIn("resuming from", outputs[0])
        self.assertIn("waiting up to 1800 sec for the chief's subspace", outputs[1])
        self.assertIn("Picture: ", outputs[0])
        one, two = checkpoints
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertAllEqual(one[name], two[name], msg=name)
        self.assertTrue(two["batch_norm_updated/.ATTRIBUTES/VARIABLE_VALUE"])
        losses = list(report.read_scalars(self.root / "cluster")["loss/total"].values())
        self.assertLess(losses[-1], losses[0])

    @pytest.mark.slow
    def test_a_missing_folder_on_the_chief_ends_both_hosts(self):
        statuses, outputs = self.run_on_two_hosts("refused", weight_load_dir="/nowhere")
        self.assertEqual(statuses, [2, 3], outputs)
        self.assertIn("`weight_load_dir` must be a folder with weight snapshots", outputs[0])
        self.assertIn("worker 0", outputs[1].splitlines()[-1])

    @pytest.mark.long
    def test_the_picture_is_drawn_from_the_logs_of_both_phases(self):
        with contextlib.redirect_stdout(io.StringIO()):
            accuracies = phases.evaluate_phases(self.result)
            path = picture.draw(self.result, accuracies)
        begin = 24 * 120 / 1437
        one, average, two = (list(curve) for curve in accuracies.values())
        self.assertAllClose((one[-1], average, two[0]), (begin, [begin], begin))
        self.assertAllClose(two[1:], [begin + steps * 480 / 1437 for steps in (3, 6)])
        self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(path.parent, self.root / "whole")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
