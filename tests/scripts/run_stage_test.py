"""The scripts of both phases lead from digits to a trained network; wrong calls are told."""

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class RunStageTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir())
        # The scripts as they are, with the interpreter of this test.
        scripts = self.folder / "checkout" / "scripts"
        scripts.mkdir(parents=True, exist_ok=True)
        for name in ("run_stage_1.sh", "run_stage_2.sh"):
            if not (scripts / name).exists():
                (scripts / name).symlink_to(SCRIPTS / name)
        (scripts / "venv.sh").write_text(f"export PYTHON={sys.executable}\n", encoding="utf-8")
        self.scripts = scripts

    def run_script(self, script, *arguments, **values):
        environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent), "DATASET_NAME": "digits"}
        return subprocess.run(
            ["bash", str(self.scripts / script), *map(str, arguments)],
            env=environment | {name: str(value) for name, value in values.items()},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def test_both_phases_run_on_digits(self):
        small = {"NUM_NODES": 2, "EPOCHS": 1, "DECAY_EPOCHS": 2, "WARMUP_EPOCHS": 0.5}
        first = self.run_script("run_stage_1.sh", "data", SNAPSHOT_PER_EPOCH=8, **small)
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        self.assertRegex(first.stdout, r"============== Accuracy: \{'top_1_accuracy': 0\.\d+")
        self.assertLen(list((self.folder / "checkpoint_stage_1/checkpoint_pca").iterdir()), 8)

        values = {"NUM_NODES": 2, "EPOCHS": 1, "N_COMPONENTS": 5}
        second = self.run_script("run_stage_2.sh", "data", "checkpoint_stage_1", **values)
        self.assertEqual(second.returncode, 0, second.stdout + second.stderr)
        self.assertRegex(second.stdout, r"============== Accuracy: \{'top_1_accuracy': 0\.\d+")
        for name in ("subspace.png", "subspace.safetensors", "model.ckpt-3.index"):
            self.assertTrue((self.folder / "checkpoint_stage_2" / name).is_file())

    def test_another_number_of_arguments_is_told_and_fails(self):
        for script, wrong in (
            ("run_stage_1.sh", ((), ("a", "b"))),
            ("run_stage_2.sh", ((), ("a",), ("a", "b", "c", "d"), ("a", ""))),
        ):
            for arguments in wrong:
                result = self.run_script(script, *arguments)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, rf"^usage: bash .*{script} DATA")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["checkout"])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
