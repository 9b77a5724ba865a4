"""Tests of the records that `Telemetry` writes; `cluster_test.py` tests them in a cluster."""

import collections
import contextlib
import io
import json
import pathlib
import sys
import tempfile
from unittest import mock

import keras
import pytest
import tensorflow as tf

import terngrad_tf
from terngrad_tf.distribute import TernaryAllReduce, TernGradStrategy
from terngrad_tf.distribute.telemetry.callback import read_records
from tests.distribute.samples import build, data


def records_of(folder):
    return [json.loads(line) for line in (folder / "telemetry.jsonl").read_text().splitlines()]


def scalars_of(folder):
    """Dict from a tag to a dict from a step to its list of values; texts are lists of bytes."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in folder.glob("events.*"):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                found[value.tag][event.step].append(tf.make_ndarray(value.tensor).tolist())
    return found


class TelemetryTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "logs" / "run"

    def fit(self, model, steps, every=4):
        callback = terngrad_tf.Telemetry(self.folder, every=every)
        model.fit(*data(64 * steps), batch_size=64, verbose=0, callbacks=[callback])

    def test_steps_of_optimizers_that_a_train_step_applies_count(self):
        class TwoOptimizers(keras.Sequential):
            def train_step(self, inputs):
                x, y = inputs
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(self(x) - y)) / 2
                kernels = self.trainable_variables
                gradients = tape.gradient(loss, kernels)
                for optimizer, gradient, kernel in zip(self.own, gradients, kernels, strict=True):
                    optimizer.apply([gradient], [kernel])
                return {"loss": loss}

        with TernGradStrategy(2, telemetry_freq=1).scope():
            layers = [keras.layers.Dense(2, use_bias=False) for _ in range(2)]
            model = TwoOptimizers([keras.Input([2]), *layers])
            model.compile(optimizer=None, jit_compile=False)
            model.own = [keras.optimizers.SGD(0.1) for _ in layers]
        callback = terngrad_tf.Telemetry(self.folder, every=2)
        x = tf.ones([20, 2])
        with contextlib.redirect_stdout(io.StringIO()) as told:
            model.fit(x, x, batch_size=4, verbose=2, callbacks=[callback])
        self.assertIn("stays as it was given\n", told.getvalue())
        records = records_of(self.folder)
        # Each exchange is one of an optimizer.
        found = [(record["step"], record["num_steps"]) for record in records]
        self.assertEqual(found, [(2, 4), (4, 4)])

    @pytest.mark.slow
    def test_optimizers_that_a_model_only_holds_delay_no_record(self):
        model = build(TernGradStrategy(2, telemetry_freq=1))
        # As a teacher's, trained before.
        model.other = keras.optimizers.SGD()
        model.other.iterations.assign(1000)
        self.fit(model, 4, every=2)
        self.assertEqual([record["step"] for record in records_of(self.folder)], [2, 4])

    def test_records_are_means_since_the_last_one_and_none_is_written_twice(self):
        strategy = TernGradStrategy(2, telemetry_freq=4)
        model = build(strategy)
        self.fit(model, 10)
        records = records_of(self.folder)
        self.assertEqual([record["step"] for record in records], [4, 8])
        for record in records:
            self.assertEqual(record["num_steps"], 4)
            self.assertEqual(record["received_bytes"], strategy.traffic.received_bytes)
            self.assertNear(record["compression_ratio"], strategy.traffic.compression_ratio, 1e-9)
            self.assertIsNone(record["scale_seconds"])
            self.assertGreater(record["rest_seconds"], 0.0)
        scalars = scalars_of(self.folder)
        for tag, name in (
            ("traffic/received_bytes", "received_bytes"),
            ("traffic/bits_per_element", "bits_per_element"),
            ("ternary/cosine", "cosine"),
            ("ternary/relative_error", "relative_error"),
            ("ternary/nonzero_share", "nonzero_share"),
            ("speed/rest_seconds", "rest_seconds"),
        ):
            wanted = {record["step"]: [record[name]] for record in records}
            for step, values in scalars[tag].items():
                self.assertAllClose(values, wanted[step], rtol=1e-6)
            self.assertEqual(sorted(scalars[tag]), [4, 8])
        self.assertNotIn("speed/scale_seconds", scalars)

        # The run fell back to a checkpoint and takes steps 5 to 10 once more.
        model.optimizer.iterations.assign(5)
        self.fit(model, 10)
        self.assertEqual([record["step"] for record in records_of(self.folder)], [4, 8, 12])
        self.assertEqual(sorted(scalars_of(self.folder)["ternary/cosine"]), [4, 8, 12])
        # A new run in the same folder is recorded completely.
        self.fit(build(strategy), 5)
        self.assertEqual([record["step"] for record in records_of(self.folder)], [4, 8, 12, 4])
        # Records of steps 8 and 12 belong to the run before.
        model = build(strategy)
        model.optimizer.iterations.assign(5)
        self.fit(model, 4)
        self.assertEqual([record["step"] for record in records_of(self.folder)][3:], [4, 8])
        # Steps after others than before replace those, so that none is missing.
        model.optimizer.iterations.assign(5)
        self.fit(model, 4, every=2)
        self.assertEqual([record["step"] for record in records_of(self.folder)][5:], [6, 8])

    @pytest.mark.slow
    def test_the_wire_that_auto_took_is_a_text(self):
        # A single process makes no choice.
        with mock.patch.object(TernaryAllReduce, "wire_choices", ["auto takes it"]):
            self.fit(build(TernGradStrategy(2, telemetry_freq=4)), 4)
        found = scalars_of(self.folder)["traffic/wire_choices"]
        self.assertEqual(found, {4: [[b"auto takes it"]]})

    @pytest.mark.slow
    def test_a_stock_strategy_is_measured(self):
        devices = [f"CPU:{i}" for i in range(2)]
        strategy = tf.distribute.MirroredStrategy(
            devices, cross_device_ops=TernaryAllReduce(telemetry_freq=1)
        )
        self.fit(build(strategy, dropout=0.0), 4)
        (record,) = records_of(self.folder)
        self.assertBetween(record["cosine"], 0.0, 1.0)

    @pytest.mark.slow
    def test_invalid_lines_end_neither_a_resumed_run_nor_its_file(self):
        deep = 100_000 * b"["
        for bad in (
            *(b"not", b"[]", b'{"st', b'{"step": 1e400}', b'{"step": 1e18}', b'{"step": true}'),
            *(b'{"step": null}', b'{"step": "8"}', b'{"step": -1}', b'{"step": 1000000000000000}'),
            *(b'{"step": ' + deep, deep + b"]", b'{"step": ' + 5000 * b"9" + b"}", b"\xff\x00"),
            *(b'{"step": NaN}', b"1", b'{"step": 8, "step": 8}'),
        ):
            with self.subTest(bad=bad[:30]):
                path = pathlib.Path(self.get_temp_dir()) / "lines"
                path.write_bytes(b'{"step": 4}\n' + bad + b'\n{"step": 12}\n')
                found = set(read_records(path))
                self.assertContainsSubset({4, 12}, found)
                self.assertNotIn(8, found)
        self.assertEqual(read_records(path.with_name("none")), {})
        self.assertEqual(read_records(path.parent), {})
        # This run continues at step 5.
        self.folder.mkdir(parents=True)
        before = b'{"step": 4}\n{"step": 1e400}\n{"step": 1000000000000000000}\n'
        (self.folder / "telemetry.jsonl").write_bytes(before)
        model = build(TernGradStrategy(2, telemetry_freq=4))
        model.optimizer.iterations.assign(5)
        self.fit(model, 10)
        lines = (self.folder / "telemetry.jsonl").read_bytes().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines[3:]], [8, 12])

    def test_invalid_strategies_and_intervals_are_refused(self):
        for strategy in (TernGradStrategy(2), tf.distribute.get_strategy()):
            with self.assertRaisesRegex(ValueError, "needs a strategy that measures"):
                self.fit(build(strategy), 1)
        with self.assertRaisesRegex(ValueError, "`every` must be a positive integer.*every=0"):
            terngrad_tf.Telemetry(self.folder, every=0)
        self.assertFalse(self.folder.exists())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
