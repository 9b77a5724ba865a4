"""An exported model computes the same as the run's network, with weights or averages."""

import pathlib
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import slim_data
from terngrad_tf import training
from terngrad_tf.bin import export
from terngrad_tf.training.evaluation import evaluator
from terngrad_tf.training.storage import run_folder
from tests import runs
from tests.bin import samples
from tests.slim_data.samples import small_disk


class ExportingTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = runs.class_folder(cls)
        slim_data.convert("digits", str(cls.root / "data"))
        cls.run_dir = cls.root / "run"
        training.train(
            training.TrainConfig.of(
                train_dir=str(cls.run_dir),
                data_dir=str(cls.root / "data"),
                dataset_name="digits",
                # Local response normalization is a layer of this package.
                net="cifar10_alexnet",
                image_size=8,
                batch_size=64,
                max_steps=3,
            )
        )

    def export(self, output, *arguments):
        return samples.call(
            *(export.main, "export", "--checkpoint_dir", self.run_dir, "--output", output),
            *arguments,
        )

    def logits(self, images, average):
        model, _ = evaluator.restore_network(
            str(self.run_dir / "model.ckpt-3"), run_folder.read_run(self.run_dir), average
        )
        return model(images, training=False)

    @pytest.mark.slow
    def test_both_kinds_of_files_compute_the_logits_of_either_weights(self):
        images = np.random.default_rng(0).normal(size=(5, 8, 8, 1)).astype("float32")
        status, out, err = self.export(self.root / "average.keras")
        self.assertEqual(status, 0, err)
        self.assertIn("wrote the moving average of step 3", out)
        loaded = keras.models.load_model(self.root / "average.keras")
        self.assertAllClose(loaded(images, training=False), self.logits(images, True))
        status, out, err = self.export(self.root / "new" / "last", "--norestore_avg_var")
        self.assertEqual(status, 0, err)
        self.assertIn("wrote the last weights of step 3", out)
        # The exported model runs without this package.
        np.save(self.root / "images.npy", images)
        source = (
            "import sys, numpy as np, tensorflow as tf\n"
            "network = tf.saved_model.load(sys.argv[1])\n"
            "np.save(sys.argv[3], network.serve(np.load(sys.argv[2])))\n"
            "assert not any(name.startswith('terngrad_tf') for name in sys.modules)\n"
        )
        folder = [self.root / name for name in ("new/last", "images.npy", "logits.npy")]
        subprocess.run([sys.executable, "-c", source, *map(str, folder)], check=True)
        logits = self.logits(images, False)
        self.assertAllClose(np.load(self.root / "logits.npy"), logits, rtol=1e-5, atol=1e-5)
        self.assertNotAllClose(logits, self.logits(images, True))
        self.assertEqual(
            sorted(path.name for path in self.root.iterdir()),
            ["average.keras", "data", "images.npy", "logits.npy", "new", "run"],
        )

    def test_the_line_names_the_style_in_which_the_run_read_its_images(self):
        # The network's own is cifarnet, which digits do not have.
        status, out, err = self.export(self.root / "styled", "--norestore_avg_var")
        self.addCleanup(shutil.rmtree, self.root / "styled")
        self.assertEqual(status, 0, err)
        self.assertIn(": images [n, 8, 8, 1] in the style lenet to logits", out)

    def test_no_file_is_overwritten_and_a_missing_run_is_an_error(self):
        taken = pathlib.Path(self.get_temp_dir()) / "taken"
        taken.write_text("mine")
        status, _, err = self.export(taken)
        self.assertEqual((status, err.count("\n")), (2, 1))
        self.assertIn("`output` must not be there yet. Received: output=", err)
        self.assertEqual(taken.read_text(), "mine")
        for output in (taken / "within" / "network", pathlib.Path("/proc/network.keras")):
            status, _, err = self.export(output)
            self.assertEqual((status, err.count("\n")), (2, 1), err)
            self.assertIn(f"`output` cannot be written. Received: output={str(output)!r} (", err)
        status, _, err = self.export(taken.with_name("new"), "--checkpoint_dir", "/nowhere")
        self.assertEqual((status, err.count("\n")), (2, 1))
        self.assertIn("`checkpoint_dir` must hold a run with a checkpoint", err)

    @pytest.mark.slow
    def test_a_full_disk_has_its_own_status_and_the_path_that_was_given(self):
        with small_disk(self, 64) as folder:
            for name in ("network", "network.keras"):
                status, _, err = self.export(f"{folder}/{name}")
                self.assertEqual(status, 4, err)
                self.assertIn(f"error: {folder}/{name} cannot be written: No space left", err)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
