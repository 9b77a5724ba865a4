"""Evaluation counts each example once and follows the run's checkpoints."""

import contextlib
import csv
import gc
import io
import itertools
import sys
import threading
import types
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf import models, training
from terngrad_tf.training.evaluation import hits
from terngrad_tf.training.logs import report
from tests import runs


def _num_models():
    return sum(isinstance(found, keras.Model) for found in gc.get_objects())


class HitsTest(tf.test.TestCase):
    def test_of_equal_logits_the_first_is_the_prediction(self):
        model = keras.Sequential([keras.Input([3]), keras.layers.Activation("linear")])
        images, labels = np.float32([[2, 2, 1], [1, 2, 2], [0, 0, 0]]), np.array([0, 2, 1], "int32")
        examples = tf.data.Dataset.from_tensors((images, labels))
        with contextlib.redirect_stdout(io.StringIO()):
            found = hits.count_hits(model, examples, 3, 3, lambda images: None)
        self.assertAllClose(
            found.at_1 / 3, keras.metrics.SparseCategoricalAccuracy()(labels, images)
        )
        self.assertAllEqual(found.by_class, [[1, 1], [1, 0], [1, 0]])

    def test_the_speed_counts_the_examples_of_a_smaller_batch(self):
        model = keras.Sequential([keras.Input([3]), keras.layers.Activation("linear")])
        examples = tf.data.Dataset.from_tensors((np.zeros([4, 3], "float32"), np.zeros(4, "int32")))
        clock = types.SimpleNamespace(perf_counter=itertools.count(step=2).__next__)
        with (
            mock.patch.object(hits, "time", clock),
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            hits.count_hits(model, examples, 3, 1000, lambda images: None)
        self.assertIn("[1 batches out of 1] (1.5 examples/sec; 2.000sec/batch)", out.getvalue())


class EvaluatorTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"))
        cls.train_config = training.TrainConfig.of(
            train_dir=str(cls.root / "run"),
            data_dir=str(cls.root / "data"),
            dataset_name="digits",
            max_steps=30,
            save_iter=20,
            learning_rate_decay_type="fixed",
        )
        training.train(cls.train_config)
        cls.options = training.EvalConfig.of(
            checkpoint_dir=str(cls.root / "run"),
            eval_dir=str(cls.root / "eval"),
            data_dir=str(cls.root / "data"),
            batch_size=7,
            run_once=True,
        )

    def evaluate(self, **changes):
        return training.evaluate(self.options.changed(**changes))

    def oracle(self, prefix, num_examples=360):
        """Computes precision, recall, loss and accuracies by class of saved arrays in one batch."""
        reader = tf.train.load_checkpoint(str(self.root / "run" / "model.ckpt-30"))
        model = models.build("lenet", num_classes=10)
        suffix = "/.ATTRIBUTES/VARIABLE_VALUE"
        model.set_weights([reader.get_tensor(name + suffix) for name in prefix])
        images, labels = next(
            iter(slim_data.load("digits", str(self.root / "data"), "test", 360, 28, False))
        )
        logits = model(images[:num_examples]).numpy()
        labels = labels.numpy()[:num_examples]
        ranks = np.argsort(-logits, axis=1)
        at_1 = np.mean(ranks[:, 0] == labels)
        at_5 = np.mean(np.any(ranks[:, :5] == labels[:, None], axis=1))
        logits = logits.astype(np.float64)
        log_sums = np.log(np.sum(np.exp(logits), axis=1))
        loss = np.mean(log_sums - logits[np.arange(len(labels)), labels])
        by_class = [np.mean(ranks[labels == c, 0] == c) for c in range(10)]
        return at_1, at_5, loss, by_class

    def assert_figures(self, result, expected):
        at_1, at_5, loss, by_class = expected
        self.assertAllClose((result.precision_at_1, result.recall_at_5), (at_1, at_5))
        self.assertAllClose(result.cross_entropy, loss, rtol=1e-5)
        with open(self.root / "eval" / "classes.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["name"] for row in rows], list(slim_data.info("digits").labels))
        self.assertEqual(sum(int(row["examples"]) for row in rows), result.num_examples)
        self.assertAllClose([float(row["precision_at_1"]) for row in rows], by_class, atol=1e-6)

    @pytest.mark.slow
    def test_figures_do_not_depend_on_the_batch_size(self):
        raw = [f"optimizer/_trainable_variables/{i}" for i in range(8)]
        for batch_size in (7, 360, 1000):
            result = self.evaluate(restore_avg_var=False, batch_size=batch_size)
            self.assertEqual((result.step, result.num_examples), (30, 360))
            self.assert_figures(result, self.oracle(raw))

    @pytest.mark.slow
    def test_networks_of_earlier_checkpoints_do_not_stay_in_memory(self):
        gc.collect()
        gc.disable()
        try:
            before = _num_models()
            self.evaluate()
            self.evaluate()
            self.assertEqual(_num_models(), before)
        finally:
            gc.enable()

    @pytest.mark.long
    def test_a_class_that_the_network_does_not_have_is_missed(self):
        model = keras.Sequential([keras.Input([3]), keras.layers.Activation("linear")])
        images, labels = np.eye(3, dtype="float32"), np.array([0, 1, 7], "int32")
        examples = tf.data.Dataset.from_tensors((images, labels))
        with contextlib.redirect_stdout(io.StringIO()):
            found = hits.count_hits(model, examples, 3, 3, lambda images: None)
        self.assertEqual((found.at_1, found.seen, found.loss), (2, 3, np.inf))
        self.assertAllEqual(found.by_class, [[1, 1], [1, 1], [0, 0]])

    @pytest.mark.slow
    def test_num_examples_are_counted_exactly(self):
        raw = [f"optimizer/_trainable_variables/{i}" for i in range(8)]
        result = self.evaluate(restore_avg_var=False, num_examples=100)
        self.assertEqual(result.num_examples, 100)
        self.assert_figures(result, self.oracle(raw, 100))
        self.assertEqual(self.evaluate(num_examples=1000).num_examples, 360)

    @pytest.mark.slow
    def test_moving_averages_are_evaluated_by_default(self):
        # The first optimizer variable counts steps; the next eight are the averages.
        averages = [f"optimizer/_variables/{i}" for i in range(1, 9)]
        result = self.evaluate()
        self.assert_figures(result, self.oracle(averages))
        self.assertNotEqual(result, self.evaluate(restore_avg_var=False))

    def test_figures_are_written_for_tensorboard_and_printed(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = self.evaluate(eval_dir=str(self.root / "written"))
        scalars = report.read_scalars(self.root / "written")
        self.assertAllClose(scalars["accuracy/precision_at_1"], {30: result.precision_at_1})
        self.assertAllClose(scalars["accuracy/recall_at_5"], {30: result.recall_at_5})
        # LeNet's ReLU layers, and the last layer.
        for layer in ("conv1", "conv2", "fc3"):
            self.assertBetween(scalars[f"outputs/{layer}/sparsity"][30], 0.01, 0.99)
        self.assertEqual(scalars["outputs/logits/sparsity"], {30: 0.0})
        self.assertRegex(
            printed.getvalue(),
            r": \[52 batches out of 52\] \(\d+\.\d examples/sec; \d+\.\d{3}sec/batch\)\n",
        )
        self.assertIn(
            f": precision @ 1 = {result.precision_at_1:.4f} "
            f"recall @ 5 = {result.recall_at_5:.4f} [360 examples]\n",
            printed.getvalue(),
        )
        self.assertIn("starting evaluation on (test).\n", printed.getvalue())
        self.assertIn("at step=30, moving average.\n", printed.getvalue())
        self.assertAllClose(scalars["loss/cross_entropy"], {30: result.cross_entropy})
        self.assertIn(f": cross-entropy = {result.cross_entropy:.4f}\n", printed.getvalue())
        self.assertRegex(
            printed.getvalue(), r": least accurate of 10 classes: \w+ [01]\.\d{4}, \w+ "
        )

    def test_the_wrong_run_is_refused(self):
        def check_run(run):
            raise training.UserError(f"not {run['model']['net']}")

        with self.assertRaisesRegex(training.UserError, "not lenet"):
            self.evaluate(check_run=check_run)

    @pytest.mark.slow
    def test_a_missing_checkpoint_is_an_error_with_run_once(self):
        with self.assertRaisesRegex(training.UserError, "`checkpoint_dir` must hold a run"):
            self.evaluate(checkpoint_dir=str(self.root / "nothing"))

    def test_nothing_is_written_among_the_curves_of_another_run(self):
        other = self.root / "other"
        other.mkdir()
        (other / "run.json").write_text("{}")
        with self.assertRaisesRegex(training.UserError, "`eval_dir` must not be the folder of a"):
            self.evaluate(eval_dir=str(other))
        self.assertLen(list(other.iterdir()), 1)

    @pytest.mark.slow
    def test_an_impossible_eval_dir_is_refused(self):
        with self.assertRaisesRegex(training.UserError, "`eval_dir` must be a folder"):
            self.evaluate(eval_dir=str(self.root / "run" / "run.json"))

    @pytest.mark.slow
    def test_an_absent_device_falls_back_to_the_cpu_and_an_invalid_one_is_refused(self):
        self.assertEqual(self.evaluate(device="/gpu:7").step, 30)
        with self.assertRaisesRegex(training.UserError, "`device` must be .*device='shoe:0:0'"):
            self.evaluate(device="shoe:0:0")

    @pytest.mark.long
    def test_the_end_of_the_training_ends_a_long_wait(self):
        options = self.train_config.changed(train_dir=str(self.root / "waited"), max_steps=10)
        looks = threading.Event()

        def loop():
            with contextlib.redirect_stdout(io.StringIO()):
                self.evaluate(
                    checkpoint_dir=options.train_dir, run_once=False, eval_interval_secs=100000
                )
            looks.set()

        # There is no checkpoint before the wait.
        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        training.train(options)
        self.assertTrue(looks.wait(100))

    @pytest.mark.slow
    def test_the_loop_waits_for_checkpoints_and_ends_with_the_last(self):
        options = self.train_config.changed(train_dir=str(self.root / "late"))
        results = []

        def loop():
            results.append(
                self.evaluate(
                    checkpoint_dir=str(self.root / "late"), run_once=False, eval_interval_secs=0
                )
            )

        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            thread = threading.Thread(target=loop)
            thread.start()
            training.train(options)
            thread.join()
        self.assertEqual(results[0].step, 30)
        self.assertIn("No checkpoint file found\n", printed.getvalue())
        self.assertIn("The final step is evaluated. Exit!\n", printed.getvalue())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
