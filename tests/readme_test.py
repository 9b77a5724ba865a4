"""The README's first example runs as it stands."""

import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
DATA = """
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
x = rng.random((500, 20)).astype(np.float32)
train_dataset = tf.data.Dataset.from_tensor_slices((x, (10 * x[:, 0]).astype(int))).batch(64)
"""


class ReadmeTest(tf.test.TestCase):
    def test_the_first_python_example_trains(self):
        code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[1]
        # The data is the reader's; the strategy comes before anything uses TensorFlow.
        program = code.replace("model.fit(", f"{DATA}\nmodel.fit(", 1)
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, cwd=README.parent
        )
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        self.assertIn("num_members=8", run.stdout)
        loss = [float(value) for value in re.findall(r"loss: ([0-9.]+)", run.stdout)]
        self.assertLess(loss[-1], loss[0])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
