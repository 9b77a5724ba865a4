"""`pip install terngrad_tf` without extras: the core trains; other parts name the missing extra."""

import importlib.metadata
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import venv

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import wheels

FIT = textwrap.dedent("""
    import importlib.resources
    import importlib.util

    import keras
    import numpy as np
    import terngrad_tf

    assert importlib.util.find_spec("sklearn") is None
    assert importlib.resources.files("terngrad_tf").joinpath("py.typed").is_file()
    assert "site-packages" in terngrad_tf.__file__, terngrad_tf.__file__
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    y = x[:, :1]
    strategy = terngrad_tf.TernGradStrategy(num_nodes=2)
    with strategy.scope():
        model = keras.Sequential([keras.Input([8]), keras.layers.Dense(1, name="top")])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    snapshots = terngrad_tf.SnapshotCheckpoint("pca")
    history = model.fit(x, y, batch_size=16, epochs=5, verbose=0, callbacks=[snapshots])
    subspace = terngrad_tf.Subspace.fit("pca", num_components=2)
    with strategy.scope():
        model.compile(terngrad_tf.SubspaceSGD(subspace), "mse")
    model.fit(x, y, verbose=0)
    print("losses", *history.history["loss"])
    terngrad_tf.models, terngrad_tf.training
""")


def core_distributions(requirements):
    """Returns the installed distributions that `requirements` need, without extras."""
    found, names = {}, list(requirements)
    while names:
        needed = Requirement(names.pop())
        name = canonicalize_name(needed.name)
        if name not in found and (not needed.marker or needed.marker.evaluate({"extra": ""})):
            found[name] = importlib.metadata.distribution(name)
            names += found[name].requires or ()
    return found.values()


@pytest.mark.slow
class CoreInstallTest(unittest.TestCase):
    """The wheel in a fresh environment, with links to its required distributions."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        wheel = wheels.build(cls.folder)
        venv.create(cls.folder / "venv")
        python = cls.folder / "venv/bin/python"
        wheels.run_pip("--python", python, "install", "--no-deps", "--no-index", wheel)
        (site,) = cls.folder.glob("venv/lib/*/site-packages")
        (own,) = importlib.metadata.distributions(name="terngrad_tf", path=[str(site)])
        for distribution in core_distributions(own.requires):
            for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
                (site / top).symlink_to(distribution.locate_file(top))

    def run_installed(self, command, *arguments):
        return subprocess.run(
            [self.folder / "venv/bin" / command, *arguments],
            cwd=self.folder,
            env={"TF_CPP_MIN_LOG_LEVEL": "2", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_the_core_trains(self):
        done = self.run_installed("python", "-c", FIT)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        first, *_, last = map(float, done.stdout.split("losses")[1].split())
        self.assertLess(last, first / 2)

    def test_one_command_is_installed(self):
        files = (self.folder / "venv/bin").iterdir()
        own = [file.name for file in files if b"terngrad_tf" in file.read_bytes()]
        self.assertEqual(own, ["terngrad"])

    def test_messages_are_explained(self):
        done = self.run_installed("terngrad", "explain", "E11")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Read its log", done.stdout)

    def test_programs_check_arguments_and_then_name_a_missing_extra(self):
        missing = "sklearn is not installed: pip install 'terngrad_tf[experiments]'"
        for command, words in (
            ("mnist_train --train_dir=run --data_dir=none", "No train files of mnist"),
            ("convert --dataset_name=digits --dataset_dir=data", missing),
            ("convert --dataset_name=dgits --dataset_dir=data", "`dataset_name` must be one of"),
            ("quickstart --output_dir=out", missing),
            ("quickstart --num_nodes=0", "`num_nodes` must be"),
            ("report nowhere", "nowhere"),
        ):
            with self.subTest(command):
                done = self.run_installed("terngrad", *command.split())
                self.assertEqual(done.returncode, 2, done.stderr)
                *_, line = done.stderr.splitlines()
                self.assertRegex(line, f"^terngrad {command.split()[0]}: error: ")
                self.assertIn(words, line)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
