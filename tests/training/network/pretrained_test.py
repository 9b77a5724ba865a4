"""A run can start from another run's weights: all, or all except the classification layers."""

import contextlib
import io
import pathlib
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf import models, training
from terngrad_tf.training.network import pretrained
from tests import runs

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def weights(checkpoint, num_weights):
    """Returns the network's weights, in order."""
    arrays = runs.saved(checkpoint)
    return [arrays[f"optimizer/_trainable_variables/{i}{SUFFIX}"] for i in range(num_weights)]


class PretrainedTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        cls.options = training.TrainConfig.of(
            train_dir=str(cls.root / "source"),
            data_dir="nowhere",
            dataset_name="cifar10",
            net="cifar10_alexnet",
            batch_size=2,
            max_steps=2,
            benchmark_mode=True,
        )
        with contextlib.redirect_stdout(io.StringIO()):
            cls.source = training.train(cls.options).checkpoint

    def train(self, name, **changes):
        """Starts a run from the source; returns its checkpoint and standard output."""
        changes = {"pretrained_model_checkpoint_path": str(self.root / "source"), **changes}
        options = self.options.changed(train_dir=str(self.root / name), **changes)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            checkpoint = training.train(options).checkpoint
        return checkpoint, printed.getvalue()

    def assert_refused(self, pattern, **changes):
        with self.assertRaisesRegex(training.UserError, pattern):
            self.train("refused", **changes)

    def test_fine_tuning_takes_all_weights_but_the_logits_and_logs_it(self):
        # Flowers have another number of classes. A learning rate of 0 preserves the initial
        # weights.
        checkpoint, printed = self.train(
            "tuned", fine_tune=True, dataset_name="flowers", initial_learning_rate=0.0, max_steps=1
        )
        before, after = weights(self.source, 10), weights(checkpoint, 10)
        for old, new in zip(before[:8], after[:8], strict=True):
            self.assertAllEqual(old, new)
        fresh = models.build("cifar10_alexnet", num_classes=6).get_layer("logits").get_weights()
        for start, new in zip(fresh, after[8:], strict=True):
            self.assertAllEqual(start, new)
        self.assertRegex(printed, r"Pre-trained model restored from .*source/model.ckpt-2\n")
        self.assertRegex(printed, r"[^t] restored: conv1, conv2, fc3, fc4\n")
        self.assertRegex(printed, r"not restored: logits, state of the optimizer, step\n")

    def test_a_checkpoint_whose_name_has_no_step_is_refused_in_one_line(self):
        for part in (".index", ".data-00000-of-00001"):
            shutil.copy(f"{self.source}{part}", self.root / "source" / f"renamed{part}")
        path = str(self.root / "source" / "renamed")
        pattern = "renamed must be a checkpoint whose name ends in its step"
        self.assert_refused(pattern, pretrained_model_checkpoint_path=path, max_steps=4)

    @pytest.mark.slow
    def test_without_fine_tuning_the_run_continues_exactly(self):
        checkpoint, printed = self.train("continued", max_steps=4)
        self.assertRegex(printed, "restored: all weights, state of the optimizer, step\n")
        whole, _ = self.train("whole", pretrained_model_checkpoint_path="", max_steps=4)
        one, two = runs.saved(whole), runs.saved(checkpoint)
        self.assertEqual(one.keys(), two.keys())
        for name in one:
            self.assertAllEqual(one[name], two[name], msg=name)

    @pytest.mark.slow
    def test_a_stopped_run_is_resumed_and_not_started_again(self):
        for max_steps, fact in ((3, "Pre-trained model restored"), (5, "resuming from .* step 3")):
            _, printed = self.train("stopped", max_steps=max_steps)
            self.assertRegex(printed, fact)

    def test_a_saved_run_resumes_without_the_weights_that_it_began_with(self):
        shutil.copytree(self.root / "source", self.root / "gone")
        options = {"pretrained_model_checkpoint_path": str(self.root / "gone")}
        options |= {"fine_tune": True, "net": None, "image_size": None}
        self.train("tuned_further", max_steps=1, **options)
        shutil.rmtree(self.root / "gone")
        _, printed = self.train("tuned_further", max_steps=2, **options)
        self.assertRegex(printed, "resuming from .* step 1")
        # A folder with another run stays one.
        with self.assertRaisesRegex(training.UserError, "a run that differs in fine_tune"):
            self.train("tuned_further", max_steps=3)

    def test_folder_checkpoint_and_index_file_mean_the_same(self):
        for path in (self.root / "source", self.source, f"{self.source}.index"):
            checkpoint, run = pretrained.find_source(str(path))
            self.assertEqual(checkpoint, self.source)
            self.assertEqual(run["model"]["net"], "cifar10_alexnet")

    def test_a_different_network_is_refused_in_a_line(self):
        path = "pretrained_model_checkpoint_path"
        self.assert_refused(f"`{path}` .*net of this one, 'lenet'.* with 'cifar10_al", net="lenet")
        self.assert_refused(f"`{path}` .*image_size of this one, 32.* with 24", image_size=32)
        self.assert_refused(f"`{path}` .*num_classes .*fine_tune allows", dataset_name="flowers")
        self.assert_refused(f"`{path}` .*optimizer of this one, 'adam'", optimizer="adam")
        self.assert_refused("`max_steps` must be above .* 2. Received: max_steps=2", max_steps=2)

    def test_a_path_without_a_run_is_refused(self):
        empty, alone = self.root / "empty", self.root / "alone"
        empty.mkdir()
        alone.mkdir()
        for file in pathlib.Path(self.source).parent.glob("model.ckpt-2.*"):
            shutil.copy(file, alone)
        for path in (empty, self.root / "nothing"):
            with self.assertRaisesRegex(training.UserError, "must be a checkpoint or a folder"):
                pretrained.find_source(str(path))
        with self.assertRaisesRegex(training.UserError, "must have its run's run.json beside it"):
            pretrained.find_source(str(alone / "model.ckpt-2"))

    def test_grey_images_without_a_data_set_on_disk_train_the_network(self):
        logits = weights(self.source, 10)[8]
        start = models.build("cifar10_alexnet", num_classes=10).get_layer("logits").get_weights()
        self.assertTrue(np.any(logits != start[0]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
