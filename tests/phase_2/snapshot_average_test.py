"""The mean of a run's weight snapshots as a run of its own."""

import contextlib
import io
import json
import pathlib
import sys

import pytest
import tensorflow as tf

from terngrad_tf import models
from terngrad_tf.phase_2 import AverageConfig, average_run
from terngrad_tf.subspace import save_snapshot
from terngrad_tf.training import UserError

MODEL = {"net": "lenet", "num_classes": 10, "image_size": 28, "channels": 1}
IDENTITY = {
    **{"dataset_name": "mnist", "net": "lenet", "optimizer": "momentum", "image_size": 28},
    **{"batch_size": 32, "seed": 1, "num_nodes": 1, "size_to_binarize": 1},
    **{"weight_decay": 1e-4, "dropout_keep_prob": 0.5, "label_smoothing": 0.0},
}


class AverageRunTest(tf.test.TestCase):
    def snapshot(self, name, seed):
        """Returns the path of a snapshot of a run."""
        folder = pathlib.Path(self.get_temp_dir(), name)
        path = save_snapshot(models.build("lenet", 10, seed=seed), folder / "checkpoint_pca", 10)
        run = {"identity": IDENTITY, "max_steps": 10, "model": MODEL}
        (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
        return path

    def test_the_average_of_another_run_is_refused_although_its_files_have_the_same_names(self):
        def average(path):
            config = AverageConfig.of(
                data_dir="",
                benchmark_mode=True,
                pretrained_weight_path=str(path),
                weight_load_dir=str(path.parent),
                train_dir=str(pathlib.Path(self.get_temp_dir(), "average")),
            )
            with contextlib.redirect_stdout(io.StringIO()):
                return average_run(config)[0]

        one, other = self.snapshot("one", seed=1), self.snapshot("other", seed=2)
        self.assertEqual(average(one), average(one))
        with self.assertRaisesRegex(UserError, "holds a run that differs in snapshots_fingerprint"):
            average(other)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
