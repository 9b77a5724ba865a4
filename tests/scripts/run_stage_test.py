"""Scripts of both phases: from digits to a trained network, and wrong calls."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.bin import samples
from tests.distribute import processes

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

# Verbatim, except for the scripts' folder.
TUTORIAL = """
bash run_stage_1.sh ./imagenet
bash run_stage_2.sh ./imagenet ./device0_stage_1/checkpoint_stage_1/resnet-70_625.ckpt
bash run_stage_2.sh ./imagenet ./device0_stage_1/checkpoint_stage_1/resnet-70_625.ckpt /path/pca_mat.npy
"""  # noqa: E501


class RunStageTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir())
        # The real scripts, with this test's interpreter.
        scripts = self.folder / "checkout" / "scripts"
        scripts.mkdir(parents=True, exist_ok=True)
        for name in ("run_stage_1.sh", "run_stage_2.sh", "rank_jobs.sh"):
            if not (scripts / name).exists():
                (scripts / name).symlink_to(SCRIPTS / name)
        (scripts / "venv.sh").write_text(f"export PYTHON={sys.executable}\n", encoding="utf-8")
        self.scripts = scripts

    def run_script(self, script, *arguments, **values):
        environment = {**os.environ, "DATASET_NAME": "digits"}
        return subprocess.run(
            ["bash", str(self.scripts / script), *map(str, arguments)],
            env=environment | {name: str(value) for name, value in values.items()},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=900,
        )

    def check_epochs(self, output, last):
        """Checks the tutorial's lines: before training, after each epoch, around testing."""
        times = r"epoch time: \d+\.\d{3} ms, per step time: \d+\.\d{3} ms"
        for number in (1, last):
            self.assertRegex(
                output,
                r"=== Starting Training =+\n(.*\n)*"
                rf"epoch: {number} step: \d+, loss is \d+\.\d+\n{times}\n"
                r"(.*\n)*=+ Starting Testing =+\n(.*\n)*=+ {'Accuracy': [01]\.\d+} =+\n",
            )

    @pytest.mark.long
    def test_both_phases_run_on_digits(self):
        small = {"NUM_NODES": 2, "EPOCHS": 1, "DECAY_EPOCHS": 2, "WARMUP_EPOCHS": 0.5}
        first = self.run_script("run_stage_1.sh", "data", SNAPSHOT_PER_EPOCH=8, **small)
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        self.assertRegex(first.stdout, r"============== Accuracy: \{'top_1_accuracy': 0\.\d+")
        self.check_epochs(first.stdout, 1)
        stage_1 = "device0_stage_1/checkpoint_stage_1"
        self.assertLen(list((self.folder / stage_1 / "checkpoint_pca").iterdir()), 8)

        boost = self.folder / "boost.json"
        # The tutorial's path, relative to device0_stage_1.
        snapshots = "./checkpoint_stage_1/checkpoint_pca"
        reduction = {"n_component": 5, "weight_load_dir": snapshots}
        config = {"boost": {"dim_reduce": True}, "dim_reduce": reduction}
        boost.write_text(json.dumps(config | {"common": {"device_num": 2}}), encoding="utf-8")
        checkpoint = f"{stage_1}/resnet-1_625.ckpt"
        second = self.run_script("run_stage_2.sh", "data", checkpoint, EPOCHS=1, BOOST_CONFIG=boost)
        self.assertEqual(second.returncode, 0, second.stdout + second.stderr)
        self.check_epochs(second.stdout, 1)
        self.assertIn("dim_reduce.n_component is taken as dim_reduce.n_components", second.stdout)
        self.assertRegex(second.stdout, r"============== Accuracy: \{'top_1_accuracy': 0\.\d+")
        for name in ("subspace.png", "subspace.safetensors", "model.ckpt-3.index"):
            stage_2 = self.folder / "device0_stage_2/checkpoint_stage_2"
            self.assertTrue((stage_2 / name).is_file())

    @pytest.mark.long
    def test_the_tutorials_number_of_snapshots_is_kept(self):
        values = {"NUM_NODES": 1, "BATCH_SIZE": 512, "SNAPSHOT_START_EPOCH": 20}
        values |= {"EPOCHS": 50, "SNAPSHOT_PER_EPOCH": 2, "SNAPSHOT_KEEP_MAX": 60}
        done = self.run_script("run_stage_1.sh", "data", **values)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        found = self.folder / "device0_stage_1/checkpoint_stage_1/checkpoint_pca"
        self.assertLen(list(found.iterdir()), 60)

    @pytest.mark.long
    def test_the_commands_of_the_tutorial_train_folders_of_images(self):
        labels = np.arange(16) % 4
        for split in ("train", "val"):
            for number, photo in enumerate(samples.images(labels, 32, 40, 4)):
                place = self.folder / "imagenet" / split / f"n0000000{labels[number]}"
                place.mkdir(parents=True, exist_ok=True)
                encoded = tf.io.encode_jpeg(photo).numpy()
                (place / f"{split}_{number}.JPEG").write_bytes(encoded)
        # As in the tutorial: 70 and 2 epochs, 40 snapshots, 32 components. Only the network is
        # small.
        values = {"DATASET_NAME": "imagenet", "NET": "cifar10_alexnet", "MIXED_PRECISION": False}
        values |= {"BATCH_SIZE": 16, "NUM_NODES": 2, "LR_MAX": 0.01}
        outputs = []
        for line in TUTORIAL.strip().splitlines():
            _, script, *arguments = line.replace("/path/", f"{self.folder}/").split()
            result = self.run_script(script, *arguments, **values)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            outputs.append(result.stdout)
            values["CHECKPOINT_DIR"] = f"device0_stage_{len(outputs) + 1}/checkpoint_stage_2"
        self.check_epochs(outputs[0], 70)
        for output in outputs:
            self.assertRegex(output, r": least accurate of 4 classes: n0000000[0-3] [01]\.\d{4}, n")
        snapshots = self.folder / "device0_stage_1/checkpoint_stage_1/checkpoint_pca"
        self.assertLen(list(snapshots.iterdir()), 40)
        for output in outputs[1:]:
            self.check_epochs(output, 2)
            self.assertIn("checkpoint_stage_1/model.ckpt-70", output)
        self.assertEqual(np.load(self.folder / "pca_mat.npy").shape[0], 32)
        files = list((self.folder / "imagenet" / "tfrecords").glob("*-of-00016"))
        self.assertLen(files, 32)

    @pytest.mark.long
    def test_each_device_of_a_rank_table_is_a_process(self):
        # The tutorial's first two devices, whose addresses this machine does not have.
        devices = [
            {"device_id": str(i), "device_ip": f"192.{i + 1}.27.6", "rank_id": str(i)}
            for i in range(2)
        ]
        server = {"server_id": "10.*.*.*", "device": devices, "host_nic_ip": "reserve"}
        table = {"version": "1.0", "server_count": "1", "server_list": [server]}
        path = self.folder / "rank_table_8pcs.json"
        path.write_text(json.dumps(table | {"status": "completed"}), encoding="utf-8")
        values = {"RANK_TABLE_FILE": path, "EPOCHS": 1, "PORT": processes.free_ports(1)[0]}
        small = {"DECAY_EPOCHS": 2, "WARMUP_EPOCHS": 0.5, "SNAPSHOT_PER_EPOCH": 8}
        stage_1 = "device0_stage_1/checkpoint_stage_1"
        for stage, arguments, more in (
            ("stage_1", ["data"], small),
            ("stage_2", ["data", f"{stage_1}/resnet-1_625.ckpt"], {"N_COMPONENTS": 5}),
        ):
            result = self.run_script(f"run_{stage}.sh", *arguments, **values, **more)
            logs = [(self.folder / f"device{i}_{stage}/train.log").read_text() for i in range(2)]
            self.assertEqual(result.returncode, 0, "\n".join([result.stderr, *logs])[-5000:])
            self.check_epochs(logs[0], 1)
            self.assertIn("{'Accuracy': ", result.stdout)
            # Both log the same loss; only the chief tests.
            losses = [re.search("epoch: 1 step: .*", log)[0] for log in logs]
            self.assertEqual(*losses)
            self.assertNotIn("Testing", logs[1])
            self.assertFalse((self.folder / f"device1_{stage}/checkpoint_{stage}").exists())

    def test_a_wrong_number_of_arguments_fails_with_a_message(self):
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
