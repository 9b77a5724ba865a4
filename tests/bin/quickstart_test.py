"""The quickstart compares both kinds of gradients and can be run again."""

import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class QuickstartTest(tf.test.TestCase):
    def run_quickstart(self, folder):
        command = [sys.executable, "-m", "terngrad_tf.bin.quickstart", "--output_dir", str(folder)]
        command += ["--num_nodes", "2", "--max_steps", "20", "--batch_size", "16"]
        result = subprocess.run(
            command, check=True, timeout=300, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        )
        return result.stdout

    @pytest.mark.slow
    def test_it_leaves_table_plot_checkpoints_and_logs_and_uses_them_when_run_again(self):
        folder = pathlib.Path(self.get_temp_dir()) / "out"
        first = self.run_quickstart(folder)
        table = first[first.index("gradients ") :].splitlines()
        self.assertRegex(table[1], r"^ternary( +\d+\.\d\d %){2} +[\d,]+ +\d+\.\d +\d+ s$")
        self.assertRegex(table[2], r"^float( +\d+\.\d\d %){2} +[\d,]+ +1\.0 +\d+ s$")
        self.assertRegex(
            table[3], r"^ternary, then in subspace +\d+\.\d\d % +- +\d+ +[\d,]+\.\d +\d+ s$"
        )
        for picture in ("curves.png", "subspace/subspace.png"):
            self.assertEqual((folder / picture).read_bytes()[:4], b"\x89PNG")
        for name, step in (("ternary", 20), ("float", 20), ("subspace", 6)):
            self.assertTrue((folder / name / f"model.ckpt-{step}.index").exists())
            self.assertLen(list((folder / name).glob("events.*")), 1)

        again = self.run_quickstart(folder)
        self.assertEqual(again[again.index("gradients ") :].splitlines()[:4], table[:4])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
