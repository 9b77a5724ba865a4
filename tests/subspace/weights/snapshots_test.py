"""Tests of weight snapshots: files, schedule, refusals."""

import math
import os
import sys

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import terngrad_tf
from terngrad_tf.subspace import (
    SnapshotCheckpoint,
    Subspace,
    average_snapshots,
    restore_snapshot,
    save_snapshot,
)
from terngrad_tf.subspace.weights import snapshot_files
from tests.subspace.samples import build, data, flat, new_folder


class Temperature(keras.layers.Layer):
    """Multiplies by a trainable scalar."""

    def build(self, shape):
        self.factor = self.add_weight(shape=(), initializer="ones")

    def call(self, x):
        return self.factor * x


class SnapshotTestCase(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = new_folder(self)

    def steps(self):
        return [snapshot_files.step_of(path) for path in snapshot_files.find_snapshots(self.folder)]

    def fit(self, epochs, batch_size=16, model=None, initial_epoch=0, **options):
        """Trains on 96 examples; returns the model and the steps of its snapshots."""
        model = model or build()
        callback = SnapshotCheckpoint(self.folder, **options)
        model.fit(
            *data(),
            batch_size=batch_size,
            epochs=epochs,
            initial_epoch=initial_epoch,
            verbose=0,
            callbacks=[callback],
        )
        return model, self.steps()


class SnapshotFilesTest(SnapshotTestCase):
    def test_weights_names_shapes_order_and_step_make_a_round_trip(self):
        model = build()
        path = save_snapshot(model, self.folder / "made", 12)
        snapshot = snapshot_files.open_snapshot(path)
        self.assertEqual(snapshot.step, 12)
        self.assertEqual(
            snapshot.layout, tuple((v.path, tuple(v.shape)) for v in model.trainable_variables)
        )
        other = build(seed=3)
        self.assertNotAllEqual(flat(other), flat(model))
        self.assertEqual(restore_snapshot(other, path), 12)
        np.testing.assert_array_equal(flat(other), flat(model))

    def test_the_average_is_over_all_snapshots_of_a_folder_or_list(self):
        models = [build(seed=seed) for seed in range(3)]
        paths = [save_snapshot(model, self.folder, i) for i, model in enumerate(models)]
        for snapshots, used in ((self.folder, models), (paths[1:], models[1:])):
            with self.subTest(snapshots=snapshots):
                model = build(seed=9)
                self.assertEqual(average_snapshots(model, snapshots), len(used))
                expected = np.mean([flat(one).astype(np.float64) for one in used], axis=0)
                np.testing.assert_array_equal(flat(model), expected.astype(np.float32))

    def test_an_average_without_snapshots_of_others_or_not_finite_is_refused(self):
        model = build()
        before = flat(model)
        with self.assertRaisesRegex(ValueError, "`snapshots` must hold a snapshot"):
            average_snapshots(model, [])
        other = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
        with self.assertRaisesRegex(ValueError, "the model"):
            average_snapshots(model, [save_snapshot(other, self.folder / "other", 0)])
        broken = build(seed=1)
        broken.trainable_variables[0].assign(broken.trainable_variables[0] * np.nan)
        with self.assertRaisesRegex(ValueError, "must be finite"):
            average_snapshots(model, [save_snapshot(broken, self.folder / "broken", 0)])
        np.testing.assert_array_equal(flat(model), before)

    def test_only_trainable_weights_are_kept_as_float32(self):
        model = keras.Sequential(
            [
                keras.layers.Input((4,)),
                keras.layers.Dense(3, dtype="float64"),
                keras.layers.BatchNormalization(),
            ]
        )
        tensors = safetensors.numpy.load_file(save_snapshot(model, self.folder, 0))
        self.assertEqual(len(tensors), 4)
        self.assertEqual({t.dtype for t in tensors.values()}, {np.dtype(np.float32)})

    def test_weights_of_one_number_and_no_axis(self):
        inputs = keras.Input((4,))
        model = keras.Model(inputs, keras.layers.Dense(2)(Temperature()(inputs)))
        paths = []
        for step in range(3):
            for place, variable in enumerate(model.trainable_variables):
                variable.assign(tf.fill(variable.shape, (place + 1.0) ** step))
            paths.append(save_snapshot(model, self.folder, step))
        restore_snapshot(model, paths[2])
        self.assertAllEqual(flat(model)[:2], [1, 4])
        average_snapshots(model, paths)
        self.assertAllClose(flat(model)[:2], [1, 7 / 3])
        Subspace.fit(paths, num_components=2).assign_mean(model)
        self.assertAllClose(flat(model)[:2], [1, 7 / 3])

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(st.data())
    def test_a_range_is_a_part_of_the_joined_weights(self, draw):
        model = build()
        vector = flat(model)
        snapshot = snapshot_files.open_snapshot(save_snapshot(model, self.folder, 0))
        start = draw.draw(st.integers(0, vector.size - 1))
        count = draw.draw(st.integers(1, vector.size - start))
        out = np.empty(count, np.float32)
        snapshot.read_range(start, out)
        np.testing.assert_array_equal(out, vector[start : start + count])

    def test_no_partial_file_stays_and_others_may_read(self):
        path = save_snapshot(build(), self.folder, 1)
        self.assertEqual([p.name for p in self.folder.iterdir()], [path.name])
        ordinary = self.folder / "ordinary"
        ordinary.touch()
        self.assertEqual(path.stat().st_mode, ordinary.stat().st_mode)

    def test_damaged_and_foreign_files_are_refused_by_name(self):
        path = save_snapshot(build(), self.folder, 1)
        path.write_bytes(path.read_bytes()[:-3])
        with self.assertRaisesRegex(ValueError, f"{path} is damaged"):
            snapshot_files.open_snapshot(path)
        safetensors.numpy.save_file({"a": np.zeros(2)}, path)
        with self.assertRaisesRegex(ValueError, f"{path} is not a weight snapshot"):
            snapshot_files.open_snapshot(path)
        with self.assertRaises(FileNotFoundError):
            snapshot_files.open_snapshot(self.folder / "none")

    def test_another_network_is_refused_with_its_first_difference(self):
        path = save_snapshot(build(), self.folder, 1)
        with self.assertRaisesRegex(
            ValueError, r"kernel \[4, 5\] where .*kernel \[4, 6\] is expec"
        ):
            restore_snapshot(build(width=6), path)

    def test_a_step_out_of_range_is_refused(self):
        with self.assertRaisesRegex(ValueError, "`step` must be .*Received: step=-1"):
            save_snapshot(build(), self.folder, -1)


class SnapshotCheckpointTest(SnapshotTestCase):
    def test_one_snapshot_at_the_end_of_each_epoch_from_start_epoch_on(self):
        _, steps = self.fit(4, start_epoch=2)
        self.assertEqual(steps, [18, 24])

    def test_several_snapshots_an_epoch_are_evenly_spaced(self):
        _, steps = self.fit(2, per_epoch=3)
        self.assertEqual(steps, [2, 4, 6, 8, 10, 12])

    def test_a_fraction_spaces_snapshots_over_epochs(self):
        _, steps = self.fit(7, start_epoch=1, per_epoch=1 / 3)
        self.assertEqual(steps, [24, 42])

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(st.integers(1, 7), st.floats(0.2, 5), st.integers(0, 2))
    def test_the_number_of_snapshots_is_that_of_the_epochs_times_the_rate(
        self, num_steps, per_epoch, start_epoch
    ):
        taken = []
        callback = SnapshotCheckpoint("", start_epoch=start_epoch, per_epoch=per_epoch)
        callback._save = lambda: taken.append(None)
        callback._optimizer_step = lambda: 0
        callback.set_params({"steps": num_steps})
        for epoch in range(5):
            callback.on_epoch_begin(epoch)
            for batch in range(num_steps):
                callback.on_train_batch_end(batch)
            callback.on_epoch_end(epoch)
        # At most one snapshot a step.
        expected = math.floor((5 - start_epoch) * per_epoch + 1e-6)
        self.assertEqual(len(taken), min(expected, len(taken)))
        if per_epoch <= num_steps:
            self.assertEqual(len(taken), expected)

    def test_steps_between_snapshots_count_from_the_start_of_the_run(self):
        _, steps = self.fit(3, every_steps=4, start_epoch=1)
        self.assertEqual(steps, [8, 12, 16])

    def test_epochs_given_in_steps_count_from_the_start_of_the_run_whatever_fit_calls_one(self):
        # Epochs of 2.4 steps end within steps 3, 5, 8, 10 and 12; `fit` has epochs of one step.
        model, steps = self.fit(9, batch_size=96, steps_per_epoch=2.4, start_epoch=1)
        self.assertEqual(steps, [5, 8])
        _, steps = self.fit(
            12, batch_size=96, model=model, initial_epoch=9, steps_per_epoch=2.4, start_epoch=1
        )
        self.assertEqual(steps, [5, 8, 10, 12])

    def test_epochs_of_a_fraction_of_steps_that_no_float_holds(self):
        # In floats, six epochs of 50000 / 96 steps have more than 3125.
        callback = SnapshotCheckpoint("", steps_per_epoch=50000 / 96)
        self.assertEqual([callback._num_due(step, 0) for step in (3124, 3125)], [5, 6])

    def test_a_run_may_start_over(self):
        self.fit(2)
        _, steps = self.fit(1, starts_over=True)
        self.assertEqual(steps, [6, 12])

    def test_data_of_unknown_length_gives_whole_epochs(self):
        x, y = data(32)
        generator = tf.data.Dataset.from_tensor_slices((x, y)).batch(16).filter(lambda x, y: True)
        model = build()
        options = {"epochs": 4, "verbose": 0}
        callback = SnapshotCheckpoint(self.folder, per_epoch=0.5)
        model.fit(generator, callbacks=[callback], **options)
        # Without a known length, Keras counts one more step an epoch.
        self.assertLen(self.steps(), 2)
        with self.assertRaisesRegex(ValueError, "`per_epoch` must be at most 1 .*per_epoch=2"):
            callback = SnapshotCheckpoint(self.folder / "other", per_epoch=2)
            model.fit(generator, callbacks=[callback], **options)

    def test_a_resumed_run_continues_and_replaces_repeated_snapshots(self):
        model, _ = self.fit(2)
        expected, _ = self.fit(4, model=model, initial_epoch=2)
        self.assertEqual(self.steps(), [6, 12, 18, 24])
        # A killed run resumes from a checkpoint of step 12.
        times = [os.stat(path).st_mtime_ns for path in snapshot_files.find_snapshots(self.folder)]
        model.optimizer.iterations.assign(12)
        self.fit(4, model=model, initial_epoch=2)
        self.assertEqual(self.steps(), [6, 12, 18, 24])
        after = [os.stat(path).st_mtime_ns for path in snapshot_files.find_snapshots(self.folder)]
        self.assertEqual([a == b for a, b in zip(times, after, strict=True)], [1, 1, 0, 0])

    def test_local_steps_are_exchanged_before_the_snapshot_of_an_epoch(self):
        strategy = terngrad_tf.TernGradStrategy(num_nodes=2, grad_bits=32)
        with strategy.scope():
            model = build()
            local = terngrad_tf.DiLoCo(keras.optimizers.SGD(0.1), sync_every=100)
            model.compile(local, "sparse_categorical_crossentropy")
        weights = []
        after = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: weights.append(flat(model))
        )
        callbacks = [SnapshotCheckpoint(self.folder), after]
        model.fit(*data(), batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
        self.assertNotAllEqual(*weights)
        for snapshot, expected in zip(
            snapshot_files.open_snapshots(self.folder), weights, strict=True
        ):
            restore_snapshot(model, snapshot.path)
            np.testing.assert_array_equal(flat(model), expected)

    def test_keep_max_removes_the_oldest_snapshots_and_nothing_else(self):
        (self.folder / "notes.txt").touch()
        _, steps = self.fit(5, keep_max=2)
        self.assertEqual(steps, [24, 30])
        self.assertTrue((self.folder / "notes.txt").exists())

    def test_several_steps_an_execution_give_the_same_snapshots(self):
        model = build()
        model.compile("sgd", model.loss, steps_per_execution=2)
        _, steps = self.fit(2, model=model, per_epoch=3)
        self.assertEqual(steps, [2, 4, 6, 8, 10, 12])

    def test_the_folder_of_another_run_is_refused(self):
        self.fit(1)
        with self.assertRaisesRegex(ValueError, "holds 1 snapshots of another run"):
            self.fit(1)
        other = build(width=6)
        other.optimizer.iterations.assign(6)
        with self.assertRaisesRegex(ValueError, "where .* is expected"):
            self.fit(1, model=other)

    def test_a_model_without_an_optimizer_is_refused(self):
        model = build()
        model.compile(optimizer=None, loss="mse")
        with self.assertRaisesRegex(ValueError, "`model` must be compiled with an optimizer, .*="):
            self.fit(1, model=model)

    def test_arguments_out_of_range_are_refused(self):
        for options, message in (
            ({"start_epoch": -1}, "`start_epoch` must be .*start_epoch=-1"),
            ({"per_epoch": 0}, "`per_epoch` must be .*per_epoch=0"),
            ({"per_epoch": "2"}, "`per_epoch` must be .*per_epoch='2'"),
            ({"every_steps": 0}, "`every_steps` must be .*every_steps=0"),
            ({"keep_max": 0}, "`keep_max` must be .*keep_max=0"),
            ({"per_epoch": 1, "every_steps": 1}, "together"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(ValueError, message):
                SnapshotCheckpoint("", **options)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
