"""Phase 1 is ordinary training: weight snapshots and mixed precision, both resumable."""

import contextlib
import io
import sys

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import slim_data
from terngrad_tf import training
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.storage import run_folder
from tests import runs


class PhaseOneTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"), shard=True, train_shards=2)

    def train(self, name, max_steps, **changes):
        options = training.TrainConfig.of(
            train_dir=str(self.root / name),
            data_dir=str(self.root / "data"),
            dataset_name="digits",
            max_steps=max_steps,
            input_queue_memory_factor=1,
            **{"batch_size": 8, "learning_rate_decay_type": "fixed", **changes},
        )
        with contextlib.redirect_stdout(io.StringIO()):
            return training.train(options)

    def snapshots(self, name):
        """Returns {step: weights} of a run's snapshots."""
        return {
            int(path.stem.rpartition("-")[2]): safetensors.numpy.load_file(path)
            for path in sorted((self.root / name / "checkpoint_pca").iterdir())
        }

    @pytest.mark.slow
    def test_a_resumed_run_leaves_the_snapshots_of_the_run_that_was_not_stopped(self):
        # 1,437 images: an epoch has 5.7 steps.
        options = {"batch_size": 250, "snapshot_start_epoch": 1, "snapshot_per_epoch": 2}
        options |= {"snapshot_keep_max": 3, "num_nodes": 2}
        self.train("whole", 14, **options)
        self.train("parts", 9, **options)
        self.assertEqual(list(self.snapshots("parts")), [9])
        self.train("parts", 14, **options)
        whole, parts = self.snapshots("whole"), self.snapshots("parts")
        self.assertEqual(list(whole), [9, 12])
        self.assertEqual(list(parts), [9, 12])
        for step in whole:
            for name in whole[step]:
                self.assertAllEqual(whole[step][name], parts[step][name])

    @pytest.mark.slow
    def test_a_run_stopped_before_its_first_checkpoint_starts_over(self):
        folder = self.root / "early" / "checkpoint_pca"
        self.train("early", 2, snapshot_every_steps=1)
        for path in (self.root / "early").glob("model.ckpt*"):
            path.unlink()
        (self.root / "early" / "checkpoint").unlink()
        self.train("early", 2, snapshot_every_steps=1)
        self.assertLen(list(folder.iterdir()), 2)

    @pytest.mark.slow
    def test_mixed_precision_scales_the_loss_and_resumes_exactly(self):
        results = [self.train("mixed", 4, mixed_precision=True)]
        self.train("mixed-parts", 2, mixed_precision=True)
        results.append(self.train("mixed-parts", 4, mixed_precision=True))
        one, two = (tf.train.load_checkpoint(result.checkpoint) for result in results)
        names = one.get_variable_to_shape_map()
        self.assertTrue(any(name.startswith("loss_scaling/") for name in names))
        for name in names:
            if "OBJECT_GRAPH" not in name and not name.startswith("save_counter"):
                array = one.get_tensor(name)
                self.assertNotEqual(array.dtype, np.float16, name)
                self.assertAllEqual(array, two.get_tensor(name), msg=name)

        eval_options = training.EvalConfig.of(
            checkpoint_dir=str(self.root / "mixed"),
            eval_dir=str(self.root / "eval"),
            data_dir=str(self.root / "data"),
            device="/cpu:0",
            num_examples=10,
        )
        with contextlib.redirect_stdout(io.StringIO()):
            result = evaluator.evaluate_checkpoint(
                results[0].checkpoint,
                run_folder.read_run(self.root / "mixed"),
                eval_options,
            )
        self.assertEqual(result.num_examples, 10)

    @pytest.mark.long
    def test_a_fixed_loss_scale_cancels_and_overflows_end_the_run(self):
        plain, scaled = (
            self.weights(self.train(f"scale-{scale}", 2, loss_scale=scale))
            for scale in (None, 1024)
        )
        for name, array in plain.items():
            self.assertAllEqual(array, scaled[name], msg=name)
        mixed = self.weights(self.train("scale-mixed", 2, mixed_precision=True, loss_scale=1024))
        self.assertEqual(mixed.keys(), plain.keys())
        with self.assertRaises(training.DivergedError):
            self.train("scale-overflow", 2, mixed_precision=True, loss_scale=1e9)

    def weights(self, result):
        """Returns {name: value} of a checkpoint's variables."""
        saved = tf.train.load_checkpoint(result.checkpoint)
        return {
            name: saved.get_tensor(name)
            for name in saved.get_variable_to_shape_map()
            if "OBJECT_GRAPH" not in name
        }


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
