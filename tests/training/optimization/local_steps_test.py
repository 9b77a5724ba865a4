"""Training programs with local steps."""

import contextlib
import io
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import slim_data
import terngrad_tf
from terngrad_tf import training
from terngrad_tf.training.errors import UserError
from terngrad_tf.training.logs import report
from terngrad_tf.training.optimization import local_steps
from tests import runs


class LocalStepsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)

    def train(self, name, max_steps, **changes):
        values = {
            "dataset_name": "digits",
            "image_size": 12,
            "batch_size": 8,
            "num_nodes": 2,
            "grad_bits": 1,
            "sync_every": 4,
            "save_iter": 6,
            "learning_rate_decay_type": "fixed",
        }
        options = training.TrainConfig.of(
            train_dir=str(self.root / name),
            data_dir=str(self.root / "data"),
            max_steps=max_steps,
            **{**values, **changes},
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            return training.train(options), printed.getvalue()

    @pytest.mark.slow
    def test_a_run_stopped_between_exchanges_and_resumed_equals_the_whole_one(self):
        result, _ = self.train("whole", 12)
        _, printed = self.train("parts", 6)
        self.assertIn("the last 2 steps come after the last exchange", printed)
        self.train("parts", 12)
        whole = runs.saved(self.root / "whole" / "model.ckpt-12")
        parts = runs.saved(self.root / "parts" / "model.ckpt-12")
        self.assertEqual(whole.keys(), parts.keys())
        for name, array in whole.items():
            self.assertAllEqual(array, parts[name], msg=name)
        # One step and four steps send the same number of codes.
        every_step, _ = self.train("every_step", 4, sync_every=1)
        self.assertEqual(4 * result.traffic.received_bytes, every_step.traffic.received_bytes)
        scalars = report.read_scalars(self.root / "whole")
        self.assertAllClose(scalars["traffic/received_bytes"][10], result.traffic.received_bytes)

    @pytest.mark.long
    def test_evaluation_finds_averages_and_weights(self):
        result, _ = self.train("evaluated", 8, optimizer="adam")
        for restore_avg_var in (False, True):
            config = training.EvalConfig.of(
                checkpoint_dir=str(self.root / "evaluated"),
                eval_dir=str(self.root / f"eval_{restore_avg_var}"),
                data_dir=str(self.root / "data"),
                subset="test",
                restore_avg_var=restore_avg_var,
                num_examples=32,
            )
            with contextlib.redirect_stdout(io.StringIO()):
                found = training.evaluate(config)
            self.assertEqual(found.step, result.step)

    @pytest.mark.long
    def test_fragments_resume_and_receive_as_many_bytes_as_whole_exchanges(self):
        result, printed = self.train("fragments", 12, fragments=2)
        self.assertIn("the last 2 steps come after the last exchange of some weights", printed)
        self.train("fragments_in_parts", 6, fragments=2)
        self.train("fragments_in_parts", 12, fragments=2)
        whole = runs.saved(self.root / "fragments" / "model.ckpt-12")
        parts = runs.saved(self.root / "fragments_in_parts" / "model.ckpt-12")
        for name, array in whole.items():
            self.assertAllEqual(array, parts[name], msg=name)
        at_once, _ = self.train("at_once", 4)
        # Messages consist of whole words.
        self.assertAllClose(
            result.traffic.received_bytes, at_once.traffic.received_bytes, rtol=0.001
        )

    @pytest.mark.long
    def test_by_seconds_a_run_resumes_from_the_last_exchange(self):
        by_seconds = {"sync_every": 0, "sync_seconds": 100.0}
        self.train("seconds", 3, **by_seconds)
        # Rounds have 1, 1, 4 ... steps; saving ends the third after one step.
        saved = runs.saved(self.root / "seconds" / "model.ckpt-3")
        (name,) = [name for name in saved if "_steps_since_exchange" in name]
        self.assertEqual(saved[name], 0)
        result, _ = self.train("seconds", 5, **by_seconds)
        self.assertEqual(result.step, 5)

    def test_seconds_exclude_options_of_steps(self):
        for name, value in (("sync_every", 4), ("fragments", 2), ("overlap", 1)):
            changes = {"sync_every": 0, "sync_seconds": 1.0, name: value}
            with self.assertRaisesRegex(UserError, f"`{name}` must be [01] with `sync_seconds`"):
                self.train("refused", 1, **changes)
        with self.assertRaisesRegex(UserError, "`floating_grad_epoch` must be 0 with"):
            self.train("refused", 1, sync_every=0, sync_seconds=1.0, floating_grad_epoch=2)

    @pytest.mark.slow
    def test_a_run_without_any_exchange_is_refused(self):
        for changes, message in (
            ({"sync_every": 1_000_000_000}, "`sync_every` must be at most `max_steps`, 4: .*never"),
            ({"sync_every": 5}, "`sync_every` must be at most `max_steps`, 4: .*sync_every=5"),
            ({"sync_every": 4, "fragments": 2, "overlap": 1}, "`sync_every` and `overlap`=1 must"),
        ):
            with self.assertRaisesRegex(UserError, message):
                self.train("never", 4, **changes)
        self.assertFalse((self.root / "never").exists())

    @pytest.mark.slow
    def test_weights_of_synchronous_training_are_refused(self):
        self.train("synchronous", 2, sync_every=0)
        with self.assertRaisesRegex(UserError, r"with the sync_every of this one, 4 \(fine_tune"):
            self.train("other", 8, pretrained_model_checkpoint_path=str(self.root / "synchronous"))


class TrafficTest(tf.test.TestCase):
    def test_a_round_by_time_that_ends_early_counts_with_the_steps_that_it_had(self):
        strategy = terngrad_tf.TernGradStrategy(2)
        with strategy.scope():
            model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
            model.compile(terngrad_tf.DiLoCo("sgd", sync_seconds=1e4), "mse")
        # Rounds of 1, 1 and 4 steps; the fourth, of 16, ends after 2.
        model.fit(np.ones([16, 3]), np.ones([16, 1]), batch_size=2, verbose=0)
        self.assertEqual(model.optimizer.steps_of_last_round, 2)
        self.assertGreater(model.optimizer.steps_of_round, 2)
        mean = local_steps.mean_traffic(strategy, model.optimizer)(8)
        self.assertEqual(mean.received_bytes, strategy.traffic.received_bytes / 2)
        self.assertEqual(mean.float32_bytes, strategy.traffic.float32_bytes)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
