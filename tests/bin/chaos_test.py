"""A short form of `benchmarks.chaos`: workers lose what they need and go on, as root."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from tests import runs
from tests.bin import samples
from tests.distribute import network

TIMEOUT_SECONDS = 500


class ChaosTest(tf.test.TestCase):
    @pytest.mark.slow
    def test_a_disturbed_run_ends_with_the_weights_of_an_undisturbed_one(self):
        network.up(self, "tgz", "10.88.0", 2)  # skips the test where there are no hosts
        path = runs.class_folder(type(self)) / "chaos.json"
        command = [sys.executable, "-m", "benchmarks.chaos", f"--json={path}"]
        command += [
            "--hosts=2",
            "--incidents=3",
            "--seed=3",
            "--events=killed,disk_full,cut_briefly",
        ]
        ended = subprocess.run(
            command,
            env=samples.ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertLen(json.loads(path.read_text())["incidents"], 3)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
