"""Training writes logs and checkpoints, resumes exactly, and stops if it diverges."""

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf import distribute, training
from terngrad_tf.training.logs import callbacks, report, triggers
from terngrad_tf.training.optimization import optimizers
from terngrad_tf.training.runs import saving
from terngrad_tf.training.storage import run_folder
from tests import runs

LINE = re.compile(
    r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: step (\d+), entropy_loss = (\d+\.\d\d), "
    r"reg_loss = (\d+\.\d\d), total_loss = (\d+\.\d\d) "
    r"\(\d+\.\d examples/sec; \d+\.\d{3} sec/batch\), accuracy = (\d\.\d{4})$",
    re.MULTILINE,
)


OPTIONS = {
    "dataset_name": "digits",
    "max_steps": 20,
    "save_iter": 8,
    "learning_rate_decay_type": "fixed",
}
PREEMPTED = """
import json, signal, sys
from terngrad_tf import training

try:
    training.train(training.TrainConfig.of(**json.loads(sys.argv[1])))
except training.PreemptedError as error:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    print(error)
"""
TIMEOUT_SECONDS = 200


class TrainerTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)
        cls.options = training.TrainConfig.of(
            train_dir=str(cls.root / "whole"),
            data_dir=str(cls.root / "data"),
            **OPTIONS,
        )
        cls.printed = io.StringIO()
        with contextlib.redirect_stdout(cls.printed):
            cls.result = training.train(cls.options)

    def changed(self, name, **changes):
        return self.options.changed(train_dir=str(self.root / name), **changes)

    def test_checkpoints_are_written_every_save_iter_and_at_the_end(self):
        saved = sorted(p.name for p in (self.root / "whole").glob("model.ckpt-*.index"))
        self.assertEqual(saved, [f"model.ckpt-{step}.index" for step in (16, 20, 8)])
        self.assertEqual(self.result.step, 20)
        self.assertEqual(self.result.checkpoint, str(self.root / "whole" / "model.ckpt-20"))

    def test_log_lines_come_every_10_steps_in_the_known_form_and_the_loss_falls(self):
        lines = [tuple(map(float, match)) for match in LINE.findall(self.printed.getvalue())]
        # The first line shows the losses before any step.
        self.assertEqual([line[0] for line in lines], [0, 10, 20])
        for _, entropy, regularization, total, _ in lines:
            self.assertAllClose(entropy + regularization, total, atol=0.011)
        self.assertLess(lines[2][1], lines[1][1])
        self.assertLess(lines[1][1], lines[0][1])
        self.assertGreater(lines[2][4], lines[0][4])

    def test_tensorboard_has_losses_learning_rate_and_speed(self):
        scalars = report.read_scalars(self.root / "whole")
        for tag in ("loss/cross_entropy", "loss/regularization", "loss/total"):
            self.assertEqual(list(scalars[tag]), [10, 20])
            raw, smoothed = scalars[tag], scalars[f"{tag}_smoothed"]
            kept = 0.9**10
            self.assertAllClose(smoothed, {10: raw[10], 20: kept * raw[10] + (1 - kept) * raw[20]})
        logged = LINE.findall(self.printed.getvalue())
        for step, accuracy in scalars["accuracy/precision_at_1"].items():
            self.assertIn((str(step), f"{accuracy:.4f}"), [(line[0], line[4]) for line in logged])
        self.assertEqual(list(scalars["accuracy/precision_at_1"]), [10, 20])
        self.assertEqual(list(scalars["speed/examples_per_second"]), [1, 10, 20])
        self.assertAllClose(scalars["optimizer/learning_rate"][20], 0.01)

    @pytest.mark.slow
    def test_checkpoints_and_summaries_may_go_by_time(self):
        options = self.changed(
            "by_time", save_interval_secs=0, save_summaries_secs=1000, max_to_keep=100
        )
        training.train(options)
        steps = {int(path.stem.rpartition("-")[2]) for path in self.root.glob("by_time/*.index")}
        self.assertEqual(steps, set(range(1, 21)))
        # The last step has an entry in any case.
        self.assertEqual(list(report.read_scalars(self.root / "by_time")["loss/total"]), [10, 20])

    def test_the_regularization_loss_follows_the_weights(self):
        kernels = [
            array.astype(np.float64)
            for name, array in runs.saved(self.result.checkpoint).items()
            if "trainable_variables" in name and array.ndim > 1
        ]
        self.assertLen(kernels, 4)
        expected = 0.0005 / 2 * sum(np.sum(np.square(kernel)) for kernel in kernels)
        logged = report.read_scalars(self.root / "whole")["loss/regularization"][20]
        self.assertAllClose(logged, expected, rtol=0.01)

    @pytest.mark.slow
    def test_a_run_stopped_and_resumed_equals_the_run_that_was_not_stopped(self):
        for name in ("adam", "momentum"):
            whole, parts = f"whole-{name}", f"parts-{name}"
            training.train(self.changed(whole, optimizer=name, max_steps=12))
            training.train(self.changed(parts, optimizer=name, max_steps=7))
            training.train(self.changed(parts, optimizer=name, max_steps=12))
            one = runs.saved(self.root / whole / "model.ckpt-12")
            two = runs.saved(self.root / parts / "model.ckpt-12")
            self.assertEqual(one.keys(), two.keys())
            for key in one:
                self.assertAllEqual(one[key], two[key], msg=f"{name}: {key}")

    @pytest.mark.slow
    def test_sigterm_saves_the_weights_of_the_step_at_which_it_stops(self):
        # In its own process, which a signal may end.
        folder = self.root / "stopped"
        folders = {"train_dir": str(folder), "data_dir": str(self.root / "data")}
        changes = {"max_steps": 10**6, "save_iter": 3, "max_to_keep": 10**6}
        config = json.dumps(OPTIONS | folders | changes)
        process = subprocess.Popen(
            [sys.executable, "-c", PREEMPTED, config],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(process.kill)
        while not (folder / "model.ckpt-3.index").exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        self.assertEqual(process.returncode, 0, output)
        line = output.splitlines()[-1]
        self.assertEndsWith(line, "is saved: it was told to by SIGTERM")
        step = int(re.match(r"stopped at step (\d+), ", line)[1])
        latest = tf.train.latest_checkpoint(folder)
        self.assertEqual(latest, f"{folder}/model.ckpt-{step}")
        whole = training.train(self.changed("to_that_step", max_steps=step, save_iter=1000))
        one, two = runs.saved(latest), runs.saved(whole.checkpoint)
        self.assertEqual(one.keys(), two.keys())
        for key in one:
            self.assertAllEqual(one[key], two[key], msg=key)

    @pytest.mark.long
    def test_dropout_follows_its_option_and_resumes(self):
        def trained(name, max_steps, **changes):
            alexnet = {"net": "alexnet", "image_size": 57, "batch_size": 2, "optimizer": "gd"}
            options = self.changed(name, max_steps=max_steps, **{**alexnet, **changes})
            return runs.saved(training.train(options).checkpoint)

        one, two = trained("dropout", 1), trained("dropout", 2)
        states = sorted(name for name in one if name.startswith("random/"))
        self.assertLen(states, 2)  # seed and count of draws, for each of two layers
        for name in states:
            (seed, count), (seed_later, count_later) = one[name], two[name]
            self.assertGreater(count, 0)
            self.assertEqual((seed_later, count_later), (seed, 2 * count))
        none = trained("no-dropout", 1, dropout_keep_prob=1.0)
        self.assertEqual(none.keys(), one.keys() - set(states))
        matrices = [name for name in none if none[name].ndim == 2]
        self.assertTrue(any(np.any(one[name] != none[name]) for name in matrices))
        with self.assertRaisesRegex(training.UserError, "dropout_keep_prob: 0.5 there, 0.9 asked"):
            trained("dropout", 2, dropout_keep_prob=0.9)

    @pytest.mark.slow
    def test_a_finished_run_stays_unchanged(self):
        before = runs.saved(self.result.checkpoint)
        result = training.train(self.options)
        self.assertEqual(result.step, 20)
        for key, array in runs.saved(result.checkpoint).items():
            self.assertAllEqual(array, before[key])

    @pytest.mark.slow
    def test_a_loss_that_is_not_finite_stops_at_its_step_and_keeps_good_weights(self):
        options = self.changed("diverged", initial_learning_rate=1e4, save_iter=1)
        with self.assertRaisesRegex(training.DivergedError, r"step \d: the loss is") as caught:
            training.train(options)
        error = caught.exception
        self.assertEqual(error.checkpoint, f"{options.train_dir}/model.ckpt-{error.step - 1}")
        for name, array in runs.saved(error.checkpoint).items():
            self.assertTrue(np.all(np.isfinite(array)), msg=name)

    def test_weights_that_are_not_finite_are_never_saved(self):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, name="dense")])
        model.compile(optimizer=optimizers.build_optimizer("gd", 0.1), loss="mse")
        model.get_layer("dense").bias.assign([np.nan])
        checkpoint = tf.train.Checkpoint(model=model)
        manager = tf.train.CheckpointManager(checkpoint, self.get_temp_dir(), max_to_keep=2)
        strategy = distribute.TernGradStrategy(1)

        def saver_of(schedule, last_step):
            run = types.SimpleNamespace(
                strategy=strategy,
                first_step=4,
                config=types.SimpleNamespace(max_steps=last_step),
                manager=manager,
                shared=[],
                membership=None,
            )
            agreement = distribute.StepAgreement(strategy, 4)
            saver = saving.SaveCheckpoints(run, schedule, agreement)
            saver.set_model(model)
            return saver

        saver = saver_of(saving.Schedule(triggers.every_steps(5)), 9)
        with self.assertRaisesRegex(training.DivergedError, "step 5: the variable .*dense/bias"):
            saver.on_train_batch_end(0, {})
        # If only one host of a cluster checks the weights, the next loss must end the run on all
        # hosts.
        saver = saver_of(saving.Schedule(lambda step: True, is_common=False), 6)
        saver.on_train_batch_end(0, {})
        with self.assertRaisesRegex(training.DivergedError, "step 6: the variable .*dense/bias"):
            saver.on_train_batch_end(1, {})
        self.assertIsNone(manager.latest_checkpoint)

    def test_another_run_in_the_folder_is_refused(self):
        with self.assertRaisesRegex(training.UserError, "seed: 1 there, 2 asked for"):
            training.train(self.options.changed(seed=2))

    def test_missing_data_leaves_no_folder(self):
        options = self.changed("no-data", data_dir=str(self.root / "nothing"))
        with self.assertRaisesRegex(slim_data.DataError, "nothing"):
            training.train(options)
        with self.assertRaisesRegex(training.UserError, "`subset` .* Received: subset='val'"):
            training.train(self.changed("no-data", subset="val"))
        self.assertFalse((self.root / "no-data").exists())

    def test_the_run_describes_itself_for_evaluation(self):
        description = run_folder.read_run(self.root / "whole")
        self.assertEqual(
            description["model"],
            {"net": "lenet", "num_classes": 10, "image_size": 28, "channels": 1},
        )
        self.assertEqual(description["max_steps"], 20)


class ProgressBarTest(tf.test.TestCase):
    def draw(self, is_terminal):
        stream = io.StringIO()
        stream.isatty = lambda: is_terminal
        bar = callbacks.ProgressBar(first_step=5, last_step=6, stream=stream)
        bar.on_train_begin()
        bar.on_train_batch_end(0, {"loss": 0.25})
        bar.on_train_end()
        return stream.getvalue()

    def test_it_draws_on_a_terminal_only(self):
        self.assertIn("6/6  loss 0.250  0:00:00 left", self.draw(True))
        self.assertEqual(self.draw(False), "")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
