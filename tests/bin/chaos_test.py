"""A short run of `benchmarks.chaos`, as root: workers survive lost hosts, disks and links."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from benchmarks.chaos.members import Watch
from tests import runs
from tests.distribute.communication import network

TIMEOUT_SECONDS = 500


class WatchTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.watch = Watch()
        for task in range(3):
            self.watch.look(task, 1, (0, 1, 2), (1, 10))

    def test_continuing_without_a_worker_is_no_fault(self):
        self.watch.look(1, 2, (1, 2), (1, 10))
        self.assertEqual(self.watch.newest, (1, (0, 1, 2)))
        for step in range(10, 20):
            self.watch.look(1, 2, (1, 2), (2, step))
            self.watch.look(2, 2, (1, 2), (2, step))
        # Worker 0 was saving when it lost the others.
        self.watch.look(0, 1, (0, 1, 2), (1, 11))
        self.assertEqual(self.watch.newest, (2, (1, 2)))
        self.assertIsNone(self.watch.fault)

    def test_two_groups_that_train_at_once_are_found(self):
        for step in range(10, 14):
            self.watch.look(1, 2, (1, 2), (2, step))
            self.watch.look(0, 1, (0, 1, 2), (1, step + 1))
        self.assertRegex(self.watch.fault, "^worker 0 saved step 14 of generation 1 after gen")

    def test_two_groups_of_one_generation_are_found(self):
        self.watch.look(1, 2, (1, 2), (2, 11))
        self.watch.look(0, 2, (0,), (2, 11))
        self.assertRegex(self.watch.fault, r"^both \(1, 2\) and \(0,\) train as generation 2$")


class ChaosTest(tf.test.TestCase):
    def disturb(self, *options):
        """Runs `benchmarks.chaos`, which must survive its incidents, and returns them."""
        network.up(self, "tgz", "10.88.0", 2)  # skips the test if this machine cannot create hosts
        path = runs.class_folder(type(self)) / f"{self._testMethodName}.json"
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.chaos", f"--json={path}", *options],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return json.loads(path.read_text())["incidents"]

    @pytest.mark.long
    def test_a_disturbed_run_ends_with_the_weights_of_an_undisturbed_one(self):
        options = "--hosts=2 --incidents=3 --seed=3 --events=killed,disk_full,cut_briefly"
        self.assertLen(self.disturb(*options.split()), 3)

    @pytest.mark.long
    def test_the_others_continue_without_a_host_and_then_without_the_chief(self):
        options = "--hosts=3 --min_workers=1 --incidents=1 --events=away --runs=0"
        [[_, seconds_alone, seconds_together]] = self.disturb(*options.split())
        self.assertGreater(seconds_alone, 0)
        self.assertGreater(seconds_together, 0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
