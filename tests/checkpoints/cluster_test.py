"""Two processes that are killed or get SIGTERM resume, also as one process."""

import json
import os
import pathlib
import signal
import sys

import numpy as np
import pytest
import tensorflow as tf

from terngrad_tf.checkpoints import Checkpoint, files
from terngrad_tf.common import preemption
from terngrad_tf.distribute import TernGradStrategy
from tests.checkpoints import programs
from tests.distribute import processes

PROGRAM = pathlib.Path(programs.__file__)


class ClusterTest(tf.test.TestCase):
    def start(self, name, kill=None, **options):
        """Returns results, statuses and outputs of two processes; `kill` adds options to one."""
        addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
        saved = [os.path.join(self.get_temp_dir(), f"{name}-{index}.npz") for index in range(2)]
        started = [
            processes.start(
                PROGRAM,
                addresses,
                index,
                [saved[index], json.dumps({**options, **((kill or {}).get(index, {}))})],
            )
            for index in range(2)
        ]
        outputs = processes.outputs(started, timeout=300)
        results = [dict(np.load(path)) if os.path.exists(path) else None for path in saved]
        return results, [process.returncode for process in started], outputs

    @pytest.mark.slow
    def test_two_processes(self):
        root = pathlib.Path(self.get_temp_dir()) / "saved"
        optimizers = ["adam", "diloco"]
        options = {"num_nodes": 2, "optimizers": optimizers}
        saves = {**options, "folder": str(root)}
        whole, statuses, outputs = self.start("whole", **options)
        self.assertEqual(statuses, [0, 0], outputs)
        # Worker 1 is killed during the first optimizer's training, which the next start finishes.
        killed = {1: {"after": 7, "number": int(signal.SIGKILL), "optimizers": ["adam"]}}
        _, statuses, outputs = self.start("killed", killed, **saves)
        self.assertEqual(statuses[1], -9, outputs)
        self.assertNotEqual(statuses[0], 0)
        told = {1: {"after": 7, "number": int(signal.SIGTERM)}}
        _, statuses, outputs = self.start("told", told, **saves)
        self.assertEqual(statuses, [preemption.STATUS] * 2, outputs)
        for output in outputs:
            line = output.splitlines()[-1]
            self.assertIn("which is saved: worker 1 (", line)
            self.assertIn(") was told to by SIGTERM; the same command goes on", line)
        position = files.describe(files.find(root / "diloco")[-1]).position
        self.assertBetween(position.step, 7, 19)
        # A leftover of a process that was killed before it renamed its file in the shared folder.
        newest = files.find(root / "diloco")[-1]
        unfinished = newest.with_name(f".checkpoint-0000009999.safetensors.{'0' * 16}")
        unfinished.write_bytes(newest.read_bytes()[:1000])
        results, statuses, outputs = self.start("again", **saves)
        self.assertEqual(statuses, [0, 0], outputs)
        self.assertFalse(unfinished.exists())
        # Only the chief writes to the shared folder.
        renamed = [int(result.pop("renamed")) for result in results]
        self.assertGreater(renamed[0], 0)
        self.assertEqual(renamed[1], 0)
        for result in whole:
            result.pop("renamed")
        for index in range(2):
            self.assertEqual(whole[index].keys(), results[index].keys())
            for name, array in whole[index].items():
                self.assertAllEqual(array, results[index][name], (index, name))
        self.check_one_process(root, results[0])

    def assert_resumes(self, **options):
        whole, statuses, outputs = self.start("in one go", **options)
        self.assertEqual(statuses, [0, 0], outputs)
        saves = {**options, "folder": os.path.join(self.get_temp_dir(), "saved")}
        told = {1: {"after": 12, "number": int(signal.SIGTERM)}}
        _, statuses, outputs = self.start("until told", told, **saves)
        self.assertEqual(statuses, [preemption.STATUS] * 2, outputs)
        again, statuses, outputs = self.start("going on", **saves)
        self.assertEqual(statuses, [0, 0], outputs)
        for name, array in whole[0].items():
            if name != "renamed":
                self.assertAllEqual(array, again[0][name], name)

    @pytest.mark.slow
    def test_batches_that_keras_shuffles(self):
        self.assert_resumes(num_nodes=1, data="batches")

    @pytest.mark.slow
    def test_adversaries_with_several_optimizers(self):
        self.assert_resumes(num_nodes=2, optimizers=["adversaries"])

    @pytest.mark.slow
    def test_a_value_that_the_chief_alone_logs_is_monitored(self):
        folder = os.path.join(self.get_temp_dir(), "monitored")
        options = {"optimizers": ["diloco"], "folder": folder, "monitor": "distance"}
        _, statuses, outputs = self.start("monitored", **options)
        self.assertEqual(statuses, [0, 0], outputs)
        best = Checkpoint(os.path.join(folder, "diloco"), monitor="distance").best
        self.assertEqual(files.describe(best).position.epoch, 2)

    @pytest.mark.slow
    def test_what_is_not_finite_on_one_process_is_saved_by_none(self):
        folder = os.path.join(self.get_temp_dir(), "poisoned")
        options = {"optimizers": ["diloco"], "folder": folder, "poisoned": 1}
        _, statuses, outputs = self.start("poisoned", **options)
        self.assertEqual(statuses, [0, 0], outputs)
        self.assertEqual(files.find(os.path.join(folder, "diloco")), [])
        for output in outputs:
            self.assertIn("not saved at step 2: ", output)

    @pytest.mark.long
    def test_a_chief_without_its_newest_checkpoint_takes_the_copy(self):
        root = pathlib.Path(self.get_temp_dir()) / "copies"
        folders = {index: {"folder": str(root / f"own-{index}")} for index in range(2)}
        copied = {"num_nodes": 1, "num_copies": 1, "optimizers": ["adam"]}
        first, statuses, outputs = self.start("copied", folders, **copied)
        self.assertEqual(statuses, [0, 0], outputs)
        own, other = (files.find(root / f"own-{index}" / "adam") for index in range(2))
        checksums = [[files.describe(p).checksum for p in paths] for paths in (own, other)]
        self.assertEqual(*checksums)
        self.assertLen(checksums[0], 2)
        own[-1].unlink()
        again, statuses, outputs = self.start("lost", folders, **copied)
        self.assertEqual(statuses, [0, 0], outputs)
        for name, array in first[0].items():
            if name != "renamed":
                self.assertAllEqual(array, again[0][name], name)

    def check_one_process(self, root, saved):
        for name in ("adam", "diloco"):
            model = programs.make(TernGradStrategy(3), name)
            got = programs.fit(model, "arrays", [Checkpoint(root / name)])
            self.assertEqual(model.history.epoch, [])
            for position, array in enumerate(got):
                self.assertAllEqual(array, saved[f"{name}/{position}"])
            programs.fit(model, "arrays", [Checkpoint(root / name)], programs.EPOCHS + 1)
            self.assertEqual(model.history.epoch, [programs.EPOCHS])
            self.assertTrue(np.isfinite(model.history.history["loss"][0]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
