"""Output of the chief: progress, how replicas share a batch, and traffic."""

import contextlib
import io
import pathlib
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.distribute.telemetry.first_step import FirstStep
from tests.distribute import processes

SCRIPT = """
import keras, numpy as np, terngrad_tf
strategy = terngrad_tf.TernGradStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.5), "mse")
for _ in range(2):
    callbacks = [
        keras.callbacks.CSVLogger({folder!r} + "/log.csv"),
        keras.callbacks.TensorBoard({folder!r} + "/board"),
        keras.callbacks.ModelCheckpoint({folder!r} + "/model-{{epoch}}.keras"),
        keras.callbacks.CSVLogger({folder!r} + f"/own-{{strategy.process_index}}.csv"),
        keras.callbacks.BackupAndRestore({folder!r} + "/backup"),
    ][:5 if _ else 3]
    model.fit(np.ones([8, 4]), np.ones([8, 3]), batch_size=4, epochs=2, callbacks=callbacks)
model.evaluate(np.ones([8, 4]), np.ones([8, 3]))
"""


class FirstStepTest(tf.test.TestCase):
    def fit(self, strategy, **options):
        with strategy.scope():
            model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
            model.compile(keras.optimizers.SGD(0.5), "mse")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            model.fit(np.ones([8, 4]), np.ones([8, 1]), batch_size=4, **options)
        return [line for line in output.getvalue().splitlines() if "share each batch" in line]

    @pytest.mark.slow
    def test_the_line_about_replicas_appears_once(self):
        strategy = TernGradStrategy(num_nodes=2)
        self.assertEqual(self.fit(strategy, verbose=0), [])
        (line,) = self.fit(strategy)
        self.assertIn("2 replicas share each batch; the learning rate is that of the whole", line)
        self.assertEndsWith(line, "stays as it was given (now 0.5)")
        self.assertEqual(self.fit(strategy), [])
        self.assertEqual(self.fit(TernGradStrategy(num_nodes=1)), [])
        self.assertEqual(self.fit(tf.distribute.get_strategy()), [])

    def test_a_model_with_several_optimizers_or_none(self):
        strategy = TernGradStrategy(num_nodes=2)
        sgd = keras.optimizers.SGD
        with strategy.scope():
            model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
            cases = [(None, "as it was given")]
            if hasattr(keras.optimizers, "MultiOptimizer"):
                parts = keras.optimizers.OptimizerMap(sgd(0.5), {".*bias": sgd(0.25)})
                cases.append((keras.optimizers.MultiOptimizer(parts), "(now 0.25, 0.5)"))
        for optimizer, end in cases:
            with strategy.scope():
                model.compile(optimizer, "mse")
            note = FirstStep(strategy)
            note.set_model(model)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                note.on_train_batch_end(0)
            self.assertEndsWith(output.getvalue().strip(), end)

    @pytest.mark.slow
    def test_two_processes(self):
        script = pathlib.Path(self.get_temp_dir(), "script.py")
        script.write_text(SCRIPT.format(folder=self.get_temp_dir()), encoding="utf-8")
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
        started = [processes.start(script, addresses, index, []) for index in range(2)]
        chief, other = processes.outputs(started, timeout=300)
        self.assertEqual([process.returncode for process in started], [0, 0], chief + other)
        for part in (
            "2 replicas in 2 processes share each batch; ",
            "2 processes: each receives ",
            "a step instead of 60 bytes, by the wire '",
        ):
            self.assertEqual(chief.count(part), 1, chief)
            self.assertNotIn(part, other)
        self.assertIn("loss: ", chief)
        self.assertNotIn("loss: ", other)
        self.check_files(pathlib.Path(self.get_temp_dir()))

    def check_files(self, folder):
        # The log has each epoch once, though both processes got the callback.
        lines = (folder / "log.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual([line.split(",")[0] for line in lines], ["epoch", "0", "1"])
        own = [(folder / f"own-{index}.csv").read_bytes() for index in range(2)]
        self.assertEqual(*own)
        self.assertFalse((folder / "backup").exists())  # `fit` removes it at its end
        self.assertLen(list((folder / "board" / "train").glob("events*.v2")), 2)
        for epoch in (1, 2):
            keras.models.load_model(folder / f"model-{epoch}.keras")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
