"""Stopped and resumed training ends with the same bits as uninterrupted training."""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import shutil
import signal
import sys
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.checkpoints import Checkpoint, files, state
from terngrad_tf.common import preemption
from terngrad_tf.distribute import TernGradStrategy, private
from terngrad_tf.subspace import SnapshotCheckpoint
from tests import forks
from tests.checkpoints import programs

# Runs in its own process, which a signal ends.
SCRIPT = """
from tests.checkpoints import programs
programs.main({folder!r}, num_nodes=2, after=7, number={number})
"""
# Signals of a training that follows one that failed.
SCRIPT_AFTER_AN_ERROR = (
    """
import contextlib
from terngrad_tf import Checkpoint, TernGradStrategy
from tests.checkpoints import programs

with contextlib.suppress(programs.Stopped):
    model = programs.make(TernGradStrategy(2), "adam")
    programs.fit(model, "arrays", [Checkpoint("failed", 2), programs.Stop(3)])
"""
    + SCRIPT
)
SCRIPT_THAT_DIVERGES = (
    """
import numpy as np
from tests.checkpoints import programs
programs.X[16:] = np.nan
arrays = {{**programs.DATA["arrays"](), "shuffle": False}}
programs.DATA["arrays"] = lambda: arrays
"""
    + SCRIPT
)


class CheckpointTest(tf.test.TestCase):
    def folder(self, name):
        return os.path.join(self.get_temp_dir(), f"{self.id()}-{name}")

    def assert_resumes(self, strategy, optimizer, data="arrays", freq=3, stops=(8, 4), **options):
        expected = programs.fit(programs.make(strategy, optimizer, **options), data)
        folder = self.folder(f"{type(strategy).__name__}-{optimizer}-{data}-{freq}-{options}")
        for stop in stops:
            model = programs.make(strategy, optimizer, **options)
            with self.assertRaises(programs.Stopped):
                programs.fit(model, data, [Checkpoint(folder, freq), programs.Stop(stop)])
        model = programs.make(strategy, optimizer, **options)
        self.assert_equal(expected, programs.fit(model, data, [Checkpoint(folder, freq)]))
        # A further run has no epochs left.
        model = programs.make(strategy, optimizer, **options)
        self.assert_equal(expected, programs.fit(model, data, [Checkpoint(folder, freq)]))
        self.assertEqual(model.history.epoch, [])

    def assert_equal(self, expected, got):
        self.assertLen(got, len(expected))
        for one, other in zip(expected, got, strict=True):
            self.assertAllEqual(one, other)

    @pytest.mark.slow
    def test_batch_norm_dropout_moving_averages_and_the_order_of_arrays_resume(self):
        self.assert_resumes(TernGradStrategy(2), "adam")

    @pytest.mark.slow
    def test_all_optimizers_that_a_model_without_call_holds_resume(self):
        self.assert_resumes(TernGradStrategy(2), "accumulating adversaries", stops=(8,))

    @pytest.mark.long
    def test_local_steps_between_two_exchanges(self):
        self.assert_resumes(TernGradStrategy(2), "diloco", freq=4)

    @pytest.mark.long
    def test_overlapping_local_steps_resume(self):
        self.assert_resumes(TernGradStrategy(2), "overlap")

    @pytest.mark.slow
    def test_plain_keras_resumes(self):
        private.uninstall_patches()  # as in a program without our strategy
        self.assert_resumes(tf.distribute.get_strategy(), "accumulation", "shuffled", "epoch", (6,))

    @pytest.mark.long
    def test_further_optimizers_and_data_resume(self):
        strategy, plain = TernGradStrategy(2), tf.distribute.get_strategy()
        for options in (
            (strategy, "accumulation"),
            (strategy, "accumulation", "shuffled"),
            (strategy, "adam", "repeated"),
            (strategy, "adam", "generated", "epoch", (8,)),
            (strategy, "adam", "shuffled"),
            (strategy, "overlap", "generated", "epoch", (8,)),
            (plain, "adam", "arrays"),
            (plain, "adam", "repeated", "epoch", (6,)),
            (plain, "adam", "generated"),
        ):
            with self.subTest(options=options[1:]):
                self.assert_resumes(*options)
        for several in (strategy, plain):
            self.assert_resumes(several, "adam", stops=(4, 2), steps_per_execution=2)

    @pytest.mark.slow
    def test_a_run_without_finite_weights_does_not_say_that_its_last_step_is_saved(self):
        root = pathlib.Path(self.folder("root"))
        folder = str(root / "diverged" / "saved")
        script = SCRIPT_THAT_DIVERGES.format(folder=folder, number=int(signal.SIGTERM))
        status, output = forks.run_all({"diverged": script}, root)["diverged"]
        self.assertEqual(status, preemption.STATUS, output)
        (saved,) = files.find(f"{folder}/adam")
        self.assertEqual(saved, files.path_of(saved.parent, 2))
        line = output.splitlines()[-1]
        self.assertRegex(
            line, r"stopped at step \d+, and step 2 is saved: it was told to by SIGTERM"
        )

    @pytest.mark.slow
    def test_processes_that_signals_end(self):
        root = pathlib.Path(self.folder("root"))
        told = ("told", "told after an error")
        folders = {name: str(root / name / "saved") for name in ("killed", *told)}
        signals = {"killed": signal.SIGKILL, **dict.fromkeys(told, signal.SIGTERM)}
        sources = {**dict.fromkeys(folders, SCRIPT), told[1]: SCRIPT_AFTER_AN_ERROR}
        scripts = {
            name: sources[name].format(folder=folder, number=int(signals[name]))
            for name, folder in folders.items()
        }
        results = forks.run_all(scripts, root)
        statuses = {name: status for name, (status, _) in results.items()}
        expected = {"killed": -9} | dict.fromkeys(told, preemption.STATUS)
        self.assertEqual(statuses, expected, results)
        for name in told:
            line = results[name][1].splitlines()[-1]
            self.assertIn("is saved: it was told to by SIGTERM; the same command goes on", line)
            # SIGTERM came after batch 7; the checkpoint may be of the next batches.
            saved = [files.describe(p).position for p in files.find(f"{folders[name]}/adam")]
            self.assertIn(saved[-1].step, (7, 8, 9))
        strategy = TernGradStrategy(2)
        whole = programs.fit(programs.make(strategy, "adam"), "arrays")
        for folder in folders.values():
            callbacks = [Checkpoint(f"{folder}/adam", 2)]
            model = programs.make(strategy, "adam")
            self.assert_equal(whole, programs.fit(model, "arrays", callbacks))

    def test_snapshots_of_a_resumed_run_are_those_of_an_undisturbed_one(self):
        plain = tf.distribute.get_strategy()
        snapshots = {}
        for name, stops in (("whole", [()]), ("stopped", [(programs.Stop(3),), ()])):
            folder = pathlib.Path(self.folder(name))
            for stop in stops:
                own = [SnapshotCheckpoint(folder / "snapshots", per_epoch=2)]
                callbacks = [*own, Checkpoint(folder / "saved", 1), *stop]
                with self.assertRaises(programs.Stopped) if stop else contextlib.nullcontext():
                    programs.fit(programs.make(plain, "adam"), "arrays", callbacks, epochs=2)
            snapshots[name] = sorted(path.name for path in (folder / "snapshots").iterdir())
        self.assertLen(snapshots["whole"], 4)
        self.assertEqual(snapshots["stopped"], snapshots["whole"])

    @pytest.mark.slow
    def test_another_number_of_replicas_resumes(self):
        folder = self.folder("replicas")
        plain, four = tf.distribute.get_strategy(), TernGradStrategy(4, grad_bits=32)
        whole = programs.fit(programs.make(plain, "accumulation", is_plain=True), "arrays")
        model = programs.make(four, "accumulation", is_plain=True)
        with self.assertRaises(programs.Stopped):
            programs.fit(model, "arrays", [Checkpoint(folder, 5), programs.Stop(7)])
        model = programs.make(plain, "accumulation", is_plain=True)
        got = programs.fit(model, "arrays", [Checkpoint(folder, 5)])
        for one, other in zip(whole, got, strict=True):
            self.assertAllClose(one, other, rtol=1e-4, atol=1e-5)


class FolderTest(tf.test.TestCase):
    """Which checkpoints a folder keeps, and errors for checkpoints that do not fit."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir()) / self.id()
        self.plain = tf.distribute.get_strategy()

    def train(self, epochs=1, units=8, optimizer="adam", values=None, **options):
        model = programs.make(self.plain, optimizer, units)
        tell = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: logs.update(score=(values or {}).get(epoch, 0.0))
        )
        callbacks = [tell, Checkpoint(self.folder, **options)]
        programs.fit(model, "arrays", callbacks, epochs)
        return model

    def names(self):
        return [int(path.stem.partition("-")[2]) for path in files.find(self.folder)]

    @pytest.mark.slow
    def test_newest_and_best_checkpoints_are_kept(self):
        values = {0: 1.0, 1: 4.0, 2: float("nan"), 3: 3.0}
        self.train(4, values=values, monitor="score")
        self.assertEqual(self.names(), [10, 15, 20])
        checkpoint = Checkpoint(self.folder, monitor="score")
        self.assertEqual(checkpoint.best, files.path_of(self.folder, 10))
        self.assertEqual(checkpoint.latest, files.path_of(self.folder, 20))
        # The best checkpoint before a restart stays the best.
        self.train(6, values={4: 2.0, 5: 2.0}, monitor="score", keep=1)
        self.assertEqual(self.names(), [10, 30])
        self.train(7, values={6: 5.0}, monitor="score", keep=1)
        self.assertEqual(self.names(), [35])

    def test_steps_between_two_and_the_last_epoch(self):
        self.train(3, save_freq=4, keep=9)
        self.assertEqual(self.names(), [4, 8, 12, 15])

    def test_weights_for_evaluation(self):
        model = self.train(2, save_freq=3)
        other = keras.models.clone_model(model)
        before = Checkpoint(self.folder)
        before.load_weights(other)
        description, arrays, _ = files.read(before.latest)
        self.assertEqual(description.position.step, 10)
        for number, variable in enumerate(other.variables):
            self.assertAllEqual(variable, arrays[f"model.{number}"])
        with self.assertRaisesRegex(FileNotFoundError, "holds no checkpoint"):
            Checkpoint(self.folder / "none").load_weights(other)

    def refused(self, part, **options):
        with self.assertRaisesRegex(ValueError, part) as caught:
            self.train(3, **options)
        (line,) = str(caught.exception).splitlines()
        return line

    def test_a_damaged_file_is_skipped_and_reported(self):
        self.train(2)
        newest = Checkpoint(self.folder).latest
        content = newest.read_bytes()
        damages = {
            "checksum": content[:-1] + bytes([content[-1] ^ 1]),
            "damaged": content[:-5],
            "is damaged": b"",
            "another format|is damaged": b"x" * 1000,
        }
        for part, damaged in damages.items():
            with self.subTest(part=part):
                newest.write_bytes(damaged)
                with self.assertLogs("terngrad_tf", "WARNING") as logs:
                    self.train(2)
                self.assertRegex(logs.output[0], part)
                self.assertIn(f"going on from {files.path_of(self.folder, 5)}", logs.output[0])
                self.assertEqual(newest.read_bytes()[-100:], content[-100:])

    def test_an_intact_file_is_named_if_the_weights_of_a_damaged_one_are_wanted(self):
        model = self.train(3, keep=3)
        newest, before, first = reversed(files.find(self.folder))
        first_content = first.read_bytes()
        for path, named in ((newest, before), (before, first)):
            path.write_bytes(path.read_bytes()[:-1])
            told = f"{newest} is damaged: .*; give an intact `path`, such as {named}$"
            with self.assertRaisesRegex(ValueError, told):
                Checkpoint(self.folder).load_weights(model)
        Checkpoint(self.folder).load_weights(model, first)
        first.write_bytes(first_content[:-1])
        with self.assertRaisesRegex(ValueError, f"{newest} is damaged: [^;]*$"):
            Checkpoint(self.folder).load_weights(model)

    def test_files_of_others_are_no_checkpoints(self):
        model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
        path = pathlib.Path(self.get_temp_dir()) / "model.safetensors"
        for dtype in ("F32", "BF16"):
            array = {"dtype": dtype, "shape": [0], "data_offsets": [0, 0]}
            header = json.dumps({"__metadata__": {"format": "pt"}, "w": array}).encode()
            path.write_bytes(len(header).to_bytes(8, "little") + header)
            with self.assertRaisesRegex(ValueError, "is no checkpoint of .*BF16|another format"):
                Checkpoint(self.folder).load_weights(model, path)

    def test_what_is_saved_before_the_step_of_a_damaged_file_is_kept(self):
        self.train(2)
        Checkpoint(self.folder).latest.write_bytes(b"")
        callbacks = [Checkpoint(self.folder, 2, keep=1), programs.Stop(4)]
        with self.assertRaises(programs.Stopped):
            programs.fit(programs.make(self.plain, "adam"), "arrays", callbacks)
        self.assertEqual(self.names(), [8])

    def test_folders_that_do_not_fit_are_refused(self):
        self.train(1)
        (path,) = files.find(self.folder)
        self.refused("is of another model: it holds .* where .* is", units=9)
        self.refused("is of another model and optimizer", optimizer="accumulation")
        path.write_bytes(path.read_bytes()[:-1])
        self.refused("is damaged.*name another folder")

    def resume(self, *layers):
        """Trains a model with these layers for another epoch, and loads its weights."""
        model = keras.Sequential([keras.Input([4]), *layers, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        checkpoint = Checkpoint(self.folder)
        epochs = len(self.names()) + 1
        programs.fit(model, "arrays", [checkpoint], epochs)
        checkpoint.load_weights(model)

    def test_other_options_of_layers_are_reported(self):
        class Custom(keras.layers.Layer):
            def __init__(self, units):
                super().__init__()
                self.inner = keras.layers.Dense(units)

            def call(self, x):
                return self.inner(x)

        self.resume(keras.layers.Dense(8, "relu"), Custom(3))
        with self.assertNoLogs("terngrad_tf", "WARNING"):  # Keras numbers the layers anew
            self.resume(keras.layers.Dense(8, "relu"), Custom(3))
        more = keras.layers.ReLU()
        for layers, told in (
            ([keras.layers.Dense(8, "tanh"), Custom(3)], "layers.0.activation is 'relu' there"),
            ([keras.layers.Dense(8, "tanh"), Custom(3), more], "layers.2.class is 'Dense' th"),
        ):
            with self.assertLogs("terngrad_tf", "WARNING") as logs:
                self.resume(*layers)
            self.assertIn(told, logs.output[0])

    def adversaries(self, name="adversaries", epochs=1, builds=False, **attributes):
        """Trains adversaries with more attributes; returns them. `builds` the unused optimizer."""
        model = programs.make(self.plain, name)
        if builds:
            model.optimizer.build(model.trainable_variables)
        for attribute, value in attributes.items():
            setattr(model, attribute, value)
        programs.fit(model, "arrays", [Checkpoint(self.folder)], epochs)
        return model

    def test_what_a_model_gets_after_a_save_is_noticed(self):
        model = self.adversaries()
        before = state.ModelState(model)
        self.assertTrue(before.is_current)
        model.masks = tf.random.Generator.from_seed(1)
        self.assertFalse(before.is_current)

    def test_what_a_model_holds_is_restored(self):
        class Parts(keras.optimizers.SGD):
            def __init__(self):
                super().__init__()
                self.parts = [keras.optimizers.Adam(), keras.optimizers.SGD()]

        def more(number, best):
            kinds = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM
            held = {
                "third": Parts(),
                "masks": tf.random.Generator.from_seed(number),
                "best": tf.Variable(best),
                "sum": tf.Variable(number, synchronization=kinds[0], aggregation=kinds[1]),
            }
            held["third"].parts[1].learning_rate = number
            return held

        model = self.adversaries(**more(1, np.inf))
        with self.assertLogs("terngrad_tf", "WARNING") as logs:
            other = self.adversaries(**more(2, 0.0))
        self.assertLen(logs.output, 1)
        self.assertIn("`fit` trains nothing", logs.output[0])
        self.assertEqual(other.history.epoch, [])
        self.assertAllEqual(other.third.parts[1].learning_rate, 1)
        self.assertAllEqual([other.best, tf.cast(other.sum, tf.float32)], [np.inf, 1])
        self.assertAllEqual(other.masks.state, model.masks.state)
        weights = programs.make(self.plain, "adversaries")
        weights.best = tf.Variable(0.0)
        Checkpoint(self.folder).load_weights(weights)
        self.assertAllEqual(weights.best, np.inf)

    @pytest.mark.slow
    def test_local_steps_of_an_optimizer_that_a_model_holds_are_restored(self):
        def train():
            model = programs.make(TernGradStrategy(2), "local adversaries")
            programs.fit(model, "arrays", [Checkpoint(self.folder)], 1)
            held = [variable.value for variable in model.d_optimizer.variables]
            return [copy.numpy() for one in held for copy in private.local_tensors(one)]

        for one, other in zip(train(), train(), strict=True):
            self.assertAllEqual(one, other)

    def test_variables_of_open_shape_in_layers_of_one_name_are_restored(self):
        def make(*values):
            parts = [keras.layers.Dense(1, name="one") for _ in values]
            for part, value in zip(parts, values, strict=True):
                part.seen = tf.Variable(value, shape=[None])
            nets = [keras.Sequential([part]) for part in parts]
            model = keras.Sequential([keras.Input([4]), *nets])
            model.compile("sgd", "mse")
            return model, parts

        programs.fit(make([1.0, 2.0], [3.0])[0], "arrays", [Checkpoint(self.folder)], 1)
        resumed, parts = make([0.0], [0.0])
        programs.fit(resumed, "arrays", [Checkpoint(self.folder)], 2)
        self.assertAllEqual(parts[0].seen, [1.0, 2.0])
        self.assertAllEqual(parts[1].seen, [3.0])

    @pytest.mark.slow
    def test_variables_that_hold_no_numbers_are_named(self):
        for epochs in (1, 2):
            with self.assertLogs("terngrad_tf", "WARNING") as logs:
                self.adversaries(epochs=epochs, place=tf.Variable("here"), wave=tf.Variable(1j))
            self.assertIn("not saved: place and wave; a checkpoint holds", logs.output[-1])

    @pytest.mark.slow
    def test_optimizers_of_other_training_are_not_missed(self):
        before, checkpoint = keras.optimizers.Adam(), Checkpoint(self.folder)
        model, probe = programs.make(self.plain, "adam"), programs.make(self.plain, "adam")
        model.compile(before, "mse")
        programs.fit(model, "arrays", [Checkpoint(self.folder / "before")], 1)
        model.compile("sgd", "mse")
        other = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: programs.fit(probe, "arrays", epochs=1)
        )
        with self.assertNoLogs("terngrad_tf", "WARNING"):
            programs.fit(model, "arrays", [other, checkpoint], 1)

    def test_weights_are_loaded_without_what_training_keeps_beside_them(self):
        model, other = (programs.make(self.plain, "accumulation") for _ in range(2))
        model.best = tf.Variable(0.5)
        programs.fit(model, "arrays", [Checkpoint(self.folder)], 1)
        Checkpoint(self.folder).load_weights(other)
        for one, two in zip(model.variables, other.variables, strict=True):
            self.assertAllEqual(one, two)

    @pytest.mark.slow
    def test_layers_that_are_not_built_are_named(self):
        self.adversaries("unbuilt adversaries")
        with self.assertRaisesRegex(
            ValueError, "build the model before `fit`.*: sequential, not b"
        ):
            self.adversaries("unbuilt adversaries", 2)
        self.adversaries(epochs=2)
        with self.assertRaisesRegex(ValueError, "is of another model: it holds nothing where "):
            self.adversaries(
                epochs=3,
                more=[
                    keras.Sequential([keras.Input([2]), keras.layers.Dense(1)]),
                    keras.layers.Dense(1),
                ],
            )

    def test_weights_that_the_last_step_froze_resume(self):
        def freeze(is_frozen):
            model = programs.make(self.plain, "accumulation")
            model.layers[0].trainable = not is_frozen
            return model

        saved = freeze(is_frozen=True)
        programs.fit(saved, "arrays", [Checkpoint(self.folder)], 1)
        resumed = freeze(is_frozen=False)
        Checkpoint(self.folder).load_weights(resumed)
        for one, other in zip(resumed.variables, saved.variables, strict=True):
            self.assertAllEqual(one, other)

    def test_older_files_lack_what_a_model_holds(self):
        model = self.adversaries(builds=True)
        (path,) = files.find(self.folder)
        description, arrays, _ = files.read(path)
        old = {k: v for k, v in arrays.items() if k.startswith("optimizer.")}
        paths = dict(description.paths)
        for number, v in enumerate(model.trainable_variables + model.non_trainable_variables):
            old[f"model.{number}"], paths[f"model.{number}"] = v.numpy(), v.path
        files.write(dataclasses.replace(description, paths=paths, trained=None), old)
        with self.assertLogs("terngrad_tf", "WARNING") as logs:
            other = self.adversaries(epochs=1)
        for one, two in zip(model.variables, other.variables, strict=True):
            self.assertAllEqual(one, two)
        self.assertIn("is older and lacks steps and so on: they begin at their", logs.output[0])

    def test_what_no_attribute_holds_is_named(self):
        class Outside(programs.Adversaries):
            def train_step(self, data):
                logs, (net, inner) = super().train_step(data), others
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(net(data[0]))
                gradients = tape.gradient(loss, net.trainable_variables)
                for optimizer in (inner, self.outer):
                    optimizer.apply(gradients, net.trainable_variables)
                return logs

        def train(epochs):
            model = Outside()
            model.compile()
            model.outer = keras.optimizers.Adam()
            programs.fit(model, "arrays", [Checkpoint(self.folder)], epochs)

        net = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        others = net, keras.optimizers.Adam(name="inner")
        with self.assertLogs("terngrad_tf", "WARNING") as logs:
            train(1)
        self.assertIn("not saved: optimizer 'inner' and weights that `outer` tr", logs.output[0])
        with self.assertRaisesRegex(ValueError, "`outer` must be built before `fit`"):
            train(2)

    def test_checkpoints_without_a_description_of_the_model(self):
        self.resume()
        (path,) = files.find(self.folder)
        description, arrays, _ = files.read(path)
        for model in (None, "x" * 2**22, "\ud800"):  # of older files; too long; not Unicode
            files.write(dataclasses.replace(description, model=model, trained=None), arrays)
            self.assertIsNone(files.describe(path).model)
        with self.assertNoLogs("terngrad_tf", "WARNING"):
            self.resume()

    def test_a_model_that_is_built_in_the_first_step(self):
        for _ in range(2):
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            if not files.find(self.folder):
                programs.fit(model, "arrays", [Checkpoint(self.folder)], 1)
        with self.assertRaisesRegex(ValueError, "build the model before `fit`"):
            programs.fit(model, "arrays", [Checkpoint(self.folder)], 2)

    def test_sigterm_is_handled_while_fit_runs_alone(self):
        private.uninstall_patches()  # as in a program without our strategy
        handlers = []
        look = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: handlers.append(signal.getsignal(signal.SIGTERM))
        )
        model = programs.make(self.plain, "adam")
        programs.fit(model, "arrays", [Checkpoint(self.folder), look], 1)
        self.assertNotIn(signal.SIG_DFL, handlers)
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)
        stop = programs.Stop(2)
        with self.assertRaises(programs.Stopped):
            programs.fit(model, "arrays", [Checkpoint(self.folder), look, stop], 2)
        self.assertNotIn(signal.SIG_DFL, handlers)
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_weights_that_are_not_finite_are_not_saved(self):
        model = programs.make(self.plain, "adam")
        callback = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: model.trainable_variables[0].assign(
                np.full([4, 8], np.nan)
            )
        )
        with self.assertLogs("terngrad_tf", "WARNING") as logs:
            programs.fit(model, "arrays", [callback, Checkpoint(self.folder)], 1)
        self.assertIn("kernel is not finite", logs.output[0])
        self.assertEqual(self.names(), [])

    def test_a_relative_folder_stays_where_it_is_if_the_working_folder_changes(self):
        other = self.folder / "other"
        other.mkdir(parents=True)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        move = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: os.chdir(other))
        callbacks = [move, SnapshotCheckpoint("snapshots", per_epoch=1), Checkpoint("run")]
        programs.fit(programs.make(self.plain, "adam"), "arrays", callbacks, 2)
        self.assertLen(files.find(self.folder / "run"), 2)
        self.assertLen(os.listdir(self.folder / "snapshots"), 2)
        self.assertEqual(os.listdir(other), [])

    def test_a_folder_of_another_training_that_is_done_is_reported(self):
        folds = [programs.make(self.plain, "adam") for _ in range(2)]
        programs.fit(folds[0], "arrays", [Checkpoint(self.folder)], 1)
        with self.assertLogs("terngrad_tf", "WARNING") as logs:
            programs.fit(folds[1], "arrays", [Checkpoint(self.folder)], 1)
        self.assertLen(logs.output, 1)
        rule = "checkpoint-0000000005.safetensors ends epoch 1 of 1, so `fit` trains nothing"
        self.assertIn(rule, logs.output[0])

    def test_a_monitored_value_that_is_not_finite_is_no_missing_one(self):
        model = programs.make(self.plain, "adam")
        values = {0: 2.0, 1: np.nan, 2: 1.0, 3: 3.0}
        log = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: logs.update(val_loss=values[epoch])
        )
        checkpoint = Checkpoint(self.folder, monitor="val_loss")
        with self.assertNoLogs("terngrad_tf", "WARNING"):
            programs.fit(model, "arrays", [log, checkpoint], 4)
        self.assertEqual(checkpoint.best, files.path_of(self.folder, 15))

    def test_the_end_of_training_that_a_callback_stops_is_saved_or_reported(self):
        stop = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=10**9)
        for name, order in (("before", 1), ("after", -1)):
            folder = self.folder / name
            callbacks = [stop, Checkpoint(folder, 3)][::order]
            model = programs.make(self.plain, "adam")
            if name == "before":
                programs.fit(model, "arrays", callbacks)
                self.assertEqual(files.find(folder)[-1], files.path_of(folder, 10))
                continue
            with self.assertLogs("terngrad_tf", "WARNING") as logs:
                programs.fit(model, "arrays", callbacks)
            self.assertIn("the last steps, 10 to 10, are not saved: `Checkpoint`", logs.output[0])

    @pytest.mark.slow
    def test_another_size_of_batches_in_the_middle_of_an_epoch_is_reported(self):
        def fit(batch_size, epochs, *callbacks):
            model = programs.make(self.plain, "adam")
            callbacks = [Checkpoint(self.folder, 1), *callbacks]
            options = {"batch_size": batch_size, "epochs": epochs, "verbose": 0}
            model.fit(programs.X, programs.Y, callbacks=callbacks, **options)

        with self.assertRaises(programs.Stopped):
            fit(8, 1, programs.Stop(2))
        reported = "after batch 2 of 5 of epoch 1, which has 10 batches now: this epoch leaves out"
        with self.assertLogs("terngrad_tf", "WARNING") as logs:
            fit(4, 1)
        self.assertIn(reported, logs.output[0])
        with self.assertNoLogs("terngrad_tf", "WARNING"):
            fit(8, 2)  # from the end of an epoch

    def test_dtypes(self):
        arrays = {
            name: np.array(value).astype(tf.as_dtype(name).as_numpy_dtype)
            for name, value in {
                "bfloat16": [1.5],
                "float16": [[2.5]],
                "bool": True,
                "uint32": [7, 8],
                "int64": -3,
                "float8_e4m3fn": [0.5],
            }.items()
        }
        self.folder.mkdir()
        path = files.path_of(self.folder, 7)
        paths = dict.fromkeys(arrays, "x")
        files.write(files.Description(path, files.Position(7), paths, {"loss": 0.5}), arrays)
        description, read, _ = files.read(path)
        self.assertEqual(description.logs, {"loss": 0.5})
        for name, array in arrays.items():
            self.assertEqual(read[name].dtype, array.dtype)
            self.assertEqual(read[name].shape, array.shape)
            self.assertAllEqual(read[name], array)

    def test_a_kept_file_is_on_the_disk_before_older_ones_are_removed(self):
        synced = []

        def sync(path):
            synced.append((path, self.names()))

        self.folder.mkdir()
        paths = [files.path_of(self.folder, step) for step in (5, 10, 15)]
        for path in paths:
            files.write(files.Description(path, files.Position(5), {}, {}), {})
        with mock.patch.object(files, "sync", sync):
            files.remove_all_but(self.folder, paths)
            files.remove_all_but(self.folder, paths[1:])
        self.assertEqual(synced, [(paths[1], [5, 10, 15])])
        self.assertEqual(self.names(), [10, 15])

    def test_folders_that_are_not_writable(self):
        self.folder.parent.mkdir(exist_ok=True)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        try:
            with self.assertRaisesRegex(OSError, "checkpoint cannot be written: File too large"):
                self.train(1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        self.assertEqual(os.listdir(self.folder), [])
        self.folder = self.folder / "file" / "folder"
        self.folder.parent.write_bytes(b"")
        self.refused("`folder` must be a folder that can be written to")

    def test_leftovers_of_killed_processes_are_removed(self):
        self.folder.mkdir()
        left = self.folder / f".checkpoint-0000000002.safetensors.{'0' * 16}"
        kept = self.folder / ".checkpoint-mine"
        for path in (left, kept):
            path.write_bytes(b"")
        self.train(1)
        self.assertFalse(left.exists())
        self.assertTrue(kept.exists())

    def also_written(self, epoch, step, **options):
        """Trains; at an epoch's end, a file appears as if another run wrote it."""
        at_end = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda now, logs: (
                now == epoch
                and shutil.copy(files.find(self.folder)[0], files.path_of(self.folder, step))
            )
        )
        model = programs.make(self.plain, "adam")
        programs.fit(model, "arrays", [at_end, Checkpoint(self.folder, **options)])

    def test_a_folder_in_which_another_run_writes_is_refused(self):
        self.train(1)
        # A newer one, and one that this run wrote and removed.
        for epoch, step in ((2, 100), (3, 10)):
            with self.subTest(step=step):
                path = files.path_of(self.folder, step)
                with self.assertRaisesRegex(ValueError, f"another run wrote {path.name} there"):
                    self.also_written(epoch, step, keep=1)
                self.assertTrue(path.exists())
                path.unlink()
        # A new run does not ask who wrote what it finds.
        self.train(5)
        self.assertEqual(self.names(), [20, 25])

    @pytest.mark.slow
    def test_copies_and_callbacks_of_one_run_may_share_a_folder(self):
        self.train(1)
        self.also_written(2, 15, num_copies=1)
        callbacks = [Checkpoint(self.folder, freq, keep=9) for freq in (2, 3)]
        programs.fit(programs.make(self.plain, "adam"), "arrays", callbacks, 6)
        self.assertEqual(self.names(), [15, 20, 21, 22, 24, 26, 27, 28, 30])

    def test_half_written_files_of_a_live_run_are_kept(self):
        self.folder.mkdir()
        path = self.folder / f".checkpoint-0000000002.safetensors.{'0' * 16}"
        path.write_bytes(b"")
        write = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: path.write_bytes(b"more")
        )
        model = programs.make(self.plain, "adam")
        programs.fit(model, "arrays", [write, Checkpoint(self.folder)], 2)
        self.assertTrue(path.exists())

    def test_arguments_are_checked(self):
        for name, value in {
            "save_freq": 0,
            "keep": 0,
            "num_copies": -1,
            "mode": "best",
            "monitor": 3,
            "skip_data": 1,
        }.items():
            with self.subTest(name=name), self.assertRaisesRegex(ValueError, f"`{name}` must"):
                Checkpoint(self.folder, **{name: value})
        with self.assertRaisesRegex(ValueError, "`folder` must be a path"):
            Checkpoint("")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
