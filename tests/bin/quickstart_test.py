"""The quickstart compares both kinds of gradients and can run again."""

import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf


class QuickstartTest(tf.test.TestCase):
    def run_quickstart(self, folder):
        command = [sys.executable, "-m", "terngrad_tf.bin.quickstart", "--output_dir", str(folder)]
        command += ["--num_nodes", "2", "--max_steps", "25", "--batch_size", "16"]
        result = subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE, text=True)
        return result.stdout

    @pytest.mark.long
    def test_quickstart_reuses_existing_files(self):
        folder = pathlib.Path(self.get_temp_dir()) / "out"
        first, again = (self.run_quickstart(folder) for _ in range(2))
        tables = [text[text.index("gradients ") :].splitlines()[:4] for text in (first, again)]
        self.assertEqual(*tables)

    @pytest.mark.slow
    def test_quickstart_leaves_table_plot_checkpoints_and_logs(self):
        folder = pathlib.Path(self.get_temp_dir()) / "out"
        first = self.run_quickstart(folder)
        table = first[first.index("gradients ") :].splitlines()
        # LeNet's 1,256,080 gradients in a ring of two are 5.02 MB: 402 ms at 100 Mbit/s.
        times = r"(\d+\.\d) ms +(\d+\.\d) ms +\d+ s$"
        self.assertRegex(table[1], r"^ternary( +\d+\.\d\d %){2} +[\d,]+ +\d+\.\d +" + times)
        self.assertRegex(
            table[2], r"^float( +\d+\.\d\d %){2} +5,024,320 +1\.0 +401\.9 ms +40\.2 ms +\d+ s$"
        )
        self.assertRegex(table[3], r"^subspace +\d+\.\d\d % +- +\d+ +[\d,]+ +" + times)
        lines = first[first.index("gradients ") : first.index("Curves: ")].splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        steps = [int(step) for step in re.findall(r": step (\d+), entropy_loss", first)]
        self.assertEqual(steps[:4], [0, 25, 0, 25])
        for picture in ("curves.png", "subspace/subspace.png"):
            self.assertEqual((folder / picture).read_bytes()[:4], b"\x89PNG")
        self.assertIn(f": report: {folder / 'report.html'}\n\nNext:\n", first)
        self.assertEqual(first.count(": accuracy: "), 3)
        self.assertNotIn("starting evaluation", first)
        self.assertIn("Report of ternary, float, subspace", (folder / "report.html").read_text())
        for name, step in (("ternary", 25), ("float", 25), ("subspace", 6)):
            self.assertTrue((folder / name / f"model.ckpt-{step}.index").exists())
            self.assertLen(list((folder / name).glob("events.*.v2")), 1)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
