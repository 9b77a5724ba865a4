"""Scripts that train and evaluate side by side: folders, logs, exit status, Ctrl-C."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import slim_data

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
REPOSITORY = SCRIPTS.parent
EXPERIMENTS = sorted(SCRIPTS.glob("run_multi_gpus_*.sh"))


class RunMultiGpusTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir())
        # The real scripts, with this test's interpreter.
        scripts = self.folder / "checkout" / "scripts"
        scripts.mkdir(parents=True)
        for script in SCRIPTS.glob("*.sh"):
            (scripts / script.name).symlink_to(script)
        (scripts / "venv.sh").unlink()
        (scripts / "venv.sh").write_text(
            f"export PYTHON={sys.executable} ROOT='{self.folder}/checkout'\n", encoding="utf-8"
        )
        self.scripts = scripts
        self.root = self.folder / "results"
        self.root.mkdir()

    def _start(self, script, arguments=(), **values):
        environment = {
            **os.environ,
            "ROOT_WORKSPACE": str(self.root),
            "DATA_DIR": str(self.folder / "data"),
            **{name: str(value) for name, value in values.items()},
        }
        process = subprocess.Popen(
            ["bash", str(self.scripts / script), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A separate process group, as in a terminal.
            start_new_session=True,
        )
        self.addCleanup(self._stop, process)
        return process

    def _stop(self, process):
        if process.poll() is None:
            process.terminate()
        process.communicate()

    def _run(self, script, arguments=(), **values):
        process = self._start(script, arguments, **values)
        output, errors = process.communicate(timeout=240)
        return process.returncode, output, errors

    def _programs(self):
        """Returns the command lines of the programs in this test's folder."""
        lines = subprocess.run(["ps", "axww", "-o", "args="], capture_output=True, text=True).stdout
        return [
            line
            for line in lines.splitlines()
            if "-m terngrad_tf" in line and str(self.root) in line
        ]

    @pytest.mark.long
    def test_digits_are_trained_and_the_last_checkpoint_is_evaluated(self):
        status, output, errors = self._run(
            "run_digits.sh", MAX_STEPS=12, SAVE_ITER=6, EXPERIMENT="first"
        )
        self.assertEqual(status, 0, output + errors)
        self.assertRegex(output, r"precision @ 1 = 0\.\d{4} recall @ 5 = 0\.\d{4} \[360 examples\]")
        self.assertRegex(output, r"step 0, entropy_loss = ")
        data = self.root / "digits_training_data" / "first"
        self.assertTrue((data / "model.ckpt-12.index").is_file())
        logs = self.root / "digits_info"
        self.assertIn("finished at step 12", (logs / "training_first_info.txt").read_text())
        self.assertIn("The final step is evaluated", (logs / "eval_first_info.txt").read_text())
        self.assertNotEmpty(list((self.root / "digits_eval_data" / "first").glob("events*")))

    @pytest.mark.slow
    def test_a_failed_training_stops_the_evaluation_and_fails_the_script(self):
        slim_data.convert("digits", self.folder / "data", shard=True, train_shards=2)
        status, _, errors = self._run(
            "run_multi_gpus_lenet.sh", DATASET_NAME="digits", NUM_NODES=3, TRAIN_BATCH_SIZE=64
        )
        self.assertEqual(status, 2)
        self.assertIn("`batch_size` must be divisible by `num_nodes`", errors)
        self.assertEmpty(self._programs())
        (experiment,) = (self.root / "mnist_training_data").iterdir()
        self.assertRegex(
            experiment.name,
            r"^mnist_lenet_28_momentum_32_0\.01_0\.0_0_0\.0005_0\.9_1_64_3_\w+_[\w-]+$",
        )

    @pytest.mark.long
    def test_ctrl_c_stops_both_programs(self):
        slim_data.convert("digits", self.folder / "data", shard=True, train_shards=4)
        process = self._start("run_digits.sh", MAX_STEPS=100000, EXPERIMENT="stopped")
        log = self.root / "digits_info" / "training_stopped_info.txt"
        deadline = time.monotonic() + 240
        while not (log.is_file() and "step 50," in log.read_text()):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline, "the training did not start in time")
            time.sleep(0.2)
        self.assertLen(self._programs(), 2)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEmpty(self._programs())
        self.assertIn("interrupted; the same command goes on", log.read_text())

    def test_a_missing_folder_is_one_line(self):
        status, _, errors = self._run("run_multi_gpus_cifar10.sh", ROOT_WORKSPACE="/nowhere/at/all")
        self.assertEqual(status, 2)
        self.assertEqual(
            errors.strip(),
            "run_multi_gpus_cifar10.sh: `ROOT_WORKSPACE` must be a folder that exists. "
            "Received: ROOT_WORKSPACE=/nowhere/at/all",
        )

    def test_every_experiment_sets_flags_that_its_programs_know(self):
        self.assertLen(EXPERIMENTS, 4)
        flags = set(re.findall(r"--(\w+) \"\$", (SCRIPTS / "train_and_eval.sh").read_text()))
        for script in EXPERIMENTS:
            program = re.search(r"^PROGRAM=(\w+)$", script.read_text(), re.MULTILINE)[1]
            known = ""
            for kind in ("train", "eval"):
                known += subprocess.run(
                    [sys.executable, "-m", f"terngrad_tf.bin.{program}_{kind}", "--help"],
                    capture_output=True,
                    text=True,
                    cwd=REPOSITORY,
                ).stdout
            for flag in flags:
                self.assertRegex(known, rf"--(\[no\])?{flag}\b", f"{script.name}: --{flag}")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
