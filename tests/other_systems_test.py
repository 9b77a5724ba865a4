"""Programs where the calls are missing that Linux has and macOS lacks."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import pytest
import tensorflow as tf

_TESTS = pathlib.Path(__file__).resolve().parent
_FIT = textwrap.dedent("""
    import select

    import keras
    import numpy as np
    import terngrad_tf

    assert not hasattr(select, "POLLRDHUP")
    x = np.random.default_rng(0).random((64, 8), np.float32)
    strategy = terngrad_tf.TernGradStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    model.fit(x, x.sum(1, keepdims=True), batch_size=16, verbose=0)
    print("replicas:", strategy.num_replicas_in_sync)
""")
_SUPERVISED = textwrap.dedent("""
    import terngrad_tf.distribute

    terngrad_tf.distribute.run_supervised(print, 3)
""")


class OtherSystemsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))

    def script(self, text):
        path = self.folder / "script.py"
        path.write_text(text, encoding="utf-8")
        return path

    def run_terngrad(self, *arguments, status=0):
        """Runs `terngrad`; returns its output."""
        return self.run_python("-m", "terngrad_tf.bin.command.terngrad", *arguments, status=status)

    def run_python(self, *arguments, status=0):
        """Runs Python as on such a system; returns the output."""
        paths = _TESTS / "startup/macos", _TESTS.parent
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def test_two_processes_train_one_model(self):
        output = self.run_terngrad("run", "-np", 2, self.script(_FIT))
        self.assertEqual(output.count("replicas: 2\n"), 2, output)

    @pytest.mark.slow
    def test_programs_convert_train_and_evaluate(self):
        data, run = self.folder / "data", self.folder / "run"
        self.run_python(
            *("-m", "slim_data.download_and_convert_data"),
            *("--dataset_name=digits", f"--dataset_dir={data}"),
        )
        common = "--dataset_name=digits", f"--data_dir={data}"
        self.run_terngrad("mnist_train", *common, f"--train_dir={run}", "--max_steps=2")
        output = self.run_terngrad(
            *("mnist_eval", *common, f"--checkpoint_dir={run}", "--run_once"),
            f"--eval_dir={self.folder / 'evaluation'}",
        )
        self.assertRegex(output, "precision @ 1 = 0")
        output = self.run_terngrad("check", "-H", "localhost")
        self.assertIn("no fault found", output)

    @pytest.mark.slow
    def test_what_needs_linux_is_refused(self):
        script = self.script(_FIT)
        output = self.run_terngrad("run", "--background", "log", script, status=2)
        self.assertRegex(output, "^terngrad run: error: .*log: runs in the background need Linux")
        output = self.run_terngrad(
            *("mnist_distributed_train", "--data_dir=data", "--train_dir=run", "--max_restarts=2"),
            status=2,
        )
        self.assertRegex(output, "error: `max_restarts` must be 0, since this system is not Linux")
        output = self.run_python(self.script(_SUPERVISED), status=1)
        self.assertRegex(output, "\nRuntimeError: `run_supervised` needs Linux")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
