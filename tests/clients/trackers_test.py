"""Callbacks of experiment trackers, given only to the chief, log the history of `fit`.

Needs MLflow, for instance from `pip install mlflow-skinny`.
"""

import os
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
mlflow = pytest.importorskip("mlflow")


class TrackersTest(tf.test.TestCase):
    def test_metrics_in_a_file_store_equal_the_history(self):
        store = pathlib.Path(self.get_temp_dir()) / "runs"
        mlflow.set_tracking_uri(store.as_uri())
        mlflow.set_experiment("terngrad_tf")
        strategy = TernGradStrategy(2)
        with strategy.scope():
            model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
            model.compile("adam", "mse")
        callbacks = []
        if strategy.is_chief:
            callbacks.append(
                keras.callbacks.LambdaCallback(
                    on_epoch_end=lambda epoch, logs: mlflow.log_metrics(logs, step=epoch)
                )
            )
        with mlflow.start_run() as run:
            history = model.fit(
                np.ones([32, 4]), np.ones([32, 1]), epochs=3, verbose=0, callbacks=callbacks
            )
        logged = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
        self.assertAllClose([metric.value for metric in logged], history.history["loss"])
        self.assertEqual([metric.step for metric in logged], [0, 1, 2])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
