"""Scripts that train on several hosts: arguments, logs, Ctrl-C, resuming, evaluation."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import slim_data
from tests.distribute import processes

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
TIMEOUT_SECONDS = 240
SMALL = {"NET": "lenet", "IMAGE_SIZE": "12", "TRAIN_BATCH_SIZE": "8"}


class RunDistTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir()) / self.id().rpartition(".")[2]
        self.home = self.folder / "home"
        # The real scripts, with this test's interpreter.
        self.scripts = self.folder / "checkout" / "scripts"
        self.scripts.mkdir(parents=True)
        for script in SCRIPTS.glob("*.sh"):
            (self.scripts / script.name).symlink_to(script)
        (self.scripts / "venv.sh").unlink()
        (self.scripts / "venv.sh").write_text(
            f"export PYTHON={sys.executable} ROOT='{self.folder}/checkout'\n", encoding="utf-8"
        )
        self.addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(3)]

    def start(self, script, *arguments, **values):
        process = subprocess.Popen(
            ["bash", str(self.scripts / script), *arguments],
            env={
                **os.environ,
                "HOME": str(self.home),
                **values,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A separate process group, as in a terminal.
            start_new_session=True,
        )
        self.addCleanup(process.kill)
        return process

    def run_script(self, script, *arguments, **values):
        """Returns (exit status, output)."""
        process = self.start(script, *arguments, **values)
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode, output

    def wait_for(self, path, text):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (path.is_file() and text in path.read_text()):
            self.assertLess(time.monotonic(), deadline, f"no {text!r} in {path}")
            time.sleep(0.1)

    def test_scripts_of_one_process_require_their_arguments(self):
        for script, arguments, message in (
            ("run_single_worker_cifarnet.sh", ["a:1"], "Illegal number of parameters; usage: "),
            ("run_single_worker_alexnet.sh", [*"abcdef"], "Illegal number of parameters; usage: "),
            ("run_single_worker_alexnet.sh", [*"abcdefg"], "`JOB_NAME` must be worker. Received: "),
            ("run_single_ps_cifar10.sh", [*"abcd"], "Illegal number of parameters; usage: "),
            ("run_single_ps_imagenet.sh", [*"abcde"], "`JOB_NAME` must be ps. Received: "),
        ):
            with self.subTest(script=script, arguments=arguments):
                status, output = self.run_script(script, *arguments)
                self.assertEqual(status, 2)
                self.assertIn(message, output)
                self.assertEqual(output.count("\n"), 1)

    @pytest.mark.slow
    def test_scripts_of_one_process_start_a_worker_and_a_server(self):
        data = self.folder / "data"
        slim_data.convert("digits", str(data), shard=True, train_shards=2)
        worker, server, _ = self.addresses
        status, output = self.run_script(
            "run_single_worker_cifarnet.sh",
            *("", worker, "worker", "0", "-", str(data), "one"),
            **{**SMALL, "DATASET_NAME": "digits", "MAX_STEPS": "2"},
        )
        self.assertEqual(status, 0, output)
        status, output = self.run_script(
            "run_single_ps_cifar10.sh", *(server, worker, "ps", "0", "one")
        )
        self.assertEqual(status, 0, output)
        logs = self.home / "tmp"
        run = logs / "digits_training_data" / "one_worker_0"
        self.wait_for(logs / "digits_info" / "one_worker_0.log", f"saved as {run}/model.ckpt-2")
        self.assertTrue((run / "run.json").is_file())
        self.wait_for(
            logs / "cifar10_info" / "one_ps_0.log", "Synchronous training needs no parameter server"
        )

    @pytest.mark.long
    def test_two_workers_train_on_digits_stop_at_ctrl_c_and_resume(self):
        root = self.folder / "output"
        values = {
            **SMALL,
            "ROOT_WORKSPACE": str(root),
            "WORKER_HOSTS": ",".join(self.addresses[:2]),
            "SAVE_INTERVAL_SECS": "0",
            "LR_DECAY_TYPE": "fixed",
        }
        process = self.start("run_dist_digits.sh", **values, MAX_STEPS="100000")
        self.wait_for(root / "1.log", "step 50, loss = ")
        log = (root / "1.log").read_text()
        self.assertIn("is worker 1 of 2; synchronous training, ternary gradients\n", log)
        self.assertIn(": step 0, loss = ", log)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, output)
        steps = [int(path.stem.rpartition("-")[2]) for path in (root / "train").glob("*.index")]
        last = str(max(steps) + 2)
        status, output = self.run_script("run_dist_digits.sh", **values, MAX_STEPS=last)
        self.assertEqual(status, 0, output)
        self.assertIn(f"resuming from {root}/train/model.ckpt-{max(steps)}", output)
        self.assertRegex(
            output, r"precision @ 1 = 0\.\d{4} recall @ 5 = \d\.\d{4} \[360 examples\]"
        )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
