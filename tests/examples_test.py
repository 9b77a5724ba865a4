"""The scripts and notebooks of examples/ run, and the scripts learn."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import pytest

from tests import forks
from tests.distribute import processes

EXAMPLES = forks.ROOT / "examples"
ON_ONE_HOST = (
    "custom_training_loop",
    "gan",
    "mnist_convnet",
    "text_classifier",
    "transfer_learning",
)


class ExamplesTest(unittest.TestCase):
    def test_are_short(self):
        for path in EXAMPLES.glob("*.py"):
            with self.subTest(path=path.name):
                self.assertLess(len(path.read_text(encoding="utf-8").splitlines()), 80)
        names = {path.stem for path in EXAMPLES.glob("*.py")}
        self.assertEqual(names, {*ON_ONE_HOST, "two_hosts"})

    @pytest.mark.long
    def test_examples_for_one_host_learn(self):
        scripts = {name: (EXAMPLES / f"{name}.py").read_text("utf-8") for name in ON_ONE_HOST}
        with tempfile.TemporaryDirectory() as folder:
            results = forks.run_all(scripts, pathlib.Path(folder))
        for name, (status, output) in results.items():
            with self.subTest(example=name):
                self.assertEqual(status, 0, output[-3000:])
                if name == "gan":
                    radius = float(re.findall(r"radius of the points: ([0-9.]+)", output)[-1])
                    self.assertAlmostEqual(radius, 1.0, delta=0.3)
                else:
                    accuracy = float(re.findall(r"test accuracy ([0-9.]+)%", output)[-1])
                    self.assertGreater(accuracy, 80.0)

    @pytest.mark.long
    def test_code_of_the_notebooks_runs(self):
        scripts = {}
        for path in EXAMPLES.glob("*.ipynb"):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            scripts[path.stem] = "\n".join(code)
        self.assertEqual(set(scripts), {"first_steps", "looking_into_gradients"})
        with tempfile.TemporaryDirectory() as folder:
            results = forks.run_all(scripts, pathlib.Path(folder))
        for name, (status, output) in results.items():
            with self.subTest(notebook=name):
                self.assertEqual(status, 0, output[-3000:])

    @pytest.mark.slow
    def test_two_hosts_resume(self):
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
        with tempfile.TemporaryDirectory() as folder:
            first = self._run_two_hosts(addresses, folder)
            self.assertIn("starts at epoch 0", first[1])
            self.assertEqual(*(re.findall(r"loss: ([0-9.]+)", output) for output in first))
            self.assertTrue(pathlib.Path(folder, "0", "run", "checkpoint").exists())
            self.assertFalse(pathlib.Path(folder, "1", "run").exists())
            for output in self._run_two_hosts(addresses, folder):
                self.assertIn("starts at epoch 6", output)

    def _run_two_hosts(self, addresses, folder):
        """Runs the example on both hosts, each in its own folder; returns the outputs."""
        running = []
        for index in range(2):
            place = pathlib.Path(folder, str(index))
            place.mkdir(exist_ok=True)
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": {"worker": addresses}, "task": task})
            running.append(
                subprocess.Popen(
                    [sys.executable, EXAMPLES / "two_hosts.py"],
                    cwd=place,
                    env=os.environ | {"TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "2"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        outputs = [process.communicate(timeout=300)[0] for process in running]
        for process, output in zip(running, outputs, strict=True):
            self.assertEqual(process.returncode, 0, output[-3000:])
        return outputs


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
