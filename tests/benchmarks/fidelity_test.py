"""`benchmarks.fidelity` chooses rates, pairs seeds and resumes."""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import pytest

from benchmarks.fidelity import (
    budget_picture,
    default_picture,
    default_tables,
    settings,
    summary,
    tables,
)
from benchmarks.fidelity import rows as fidelity_rows
from benchmarks.lib import means, pages, source_text
from tests.slim_data import samples

ROOT = pathlib.Path(__file__).resolve().parents[2]


def row(accuracy, held_out_loss=1.0):
    """Returns a finished run whose moving average scores two points above its last weights."""
    return {
        **{"accuracy": accuracy, "average_accuracy": accuracy + 0.02, "loss": 0.5},
        **{"training_loss": 0.4, "held_out_loss": held_out_loss},
    }


class FidelityTest(unittest.TestCase):
    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def test_the_rate_is_that_of_the_lowest_loss_held_out(self):
        sweep = settings.sweep(256, 1, "Adam", ["float"])
        losses = [0.5, 0.4, None, 0.6]
        found = {run: row(0.8, loss) for run, loss in zip(sweep, losses, strict=True)}
        tuned = settings.tuned(found, [1, 2])
        self.assertEqual([(run.rate, run.seed) for run in tuned], [(0.003, 1), (0.003, 2)])

    def test_float_has_one_number_of_workers(self):
        runs = settings.workers(*(256, 1, ["lenet"], [1, 4], settings.OF_WORKERS, [1]))
        counts = [(run.gradients.split(",")[0], run.num_nodes) for run in runs]
        expected = {("float", 1): 1}
        expected |= {("correlated", count): 3 for count in (1, 4)}
        expected |= {("clip 2.5", count): 1 for count in (1, 4)}
        self.assertEqual({case: counts.count(case) for case in set(counts)}, expected)

    def test_with_batch_norm_float_gradients_are_those_of_as_many_workers(self):
        ways = ["float", "correlated, clip 0"]
        runs = settings.workers(256, 1, ["resnet_20"], [1, 4], ways, [1])
        self.assertEqual([run.num_nodes for run in runs], [1, 4, 1, 4])
        accuracies = (0.9, 0.8, 0.88, 0.79)
        rows = {run: row(accuracy) for run, accuracy in zip(runs, accuracies, strict=True)}
        cells = [line.split(" | ") for line in tables.workers(rows).splitlines()[2:]]
        self.assertEqual([line[2] for line in cells], ["1", "4", "1", "4"])
        self.assertEqual([line[5] for line in cells], ["", "", "-2.00", "-1.00"])

    def test_rows_are_found_again(self):
        path = self.folder() / "new" / "runs.jsonl"
        runs = settings.sweep(256, 1, "Adam", ["float"])
        for run in runs[:2]:
            fidelity_rows.Rows(path).add(run, row(0.8))
        rows = fidelity_rows.Rows(path)
        self.assertEqual(dict(rows), {run: row(0.8) for run in runs[:2]})
        self.assertEqual(len(rows.of(256, 1)), 2)
        self.assertEqual(rows.of(256, 2), {})

    def test_differences_are_those_of_equal_seeds(self):
        base = settings.workers(256, 1, ["lenet"], [4], ["float"], [1, 2, 3])
        rows = {run: row(0.80 + 0.01 * run.seed) for run in base}
        for run, loss in zip(base, (0.01, 0.02, 0.03), strict=True):
            ternary = dataclasses.replace(run, gradients="correlated, clip 0", num_nodes=4)
            rows[ternary] = row(rows[run]["accuracy"] - loss)
        del rows[base[2]]
        table = tables.workers(rows).splitlines()
        self.assertEqual(
            table[3],
            # t = (1.5 points) / (0.7071 / sqrt(2) points) = 3 with 1 degree of freedom.
            "| lenet | correlated, clip 0 | 4 | 3 | 80.00 ± 0.00 | -1.50 | 0.205 | 82.00 ± 0.00 |"
            " -1.50 | 0.205 | 0.5000 ± 0.0000 | 0.4000 ± 0.0000 |",
        )

    def test_equal_pairs_have_no_p(self):
        found = {seed: row(0.8 + 0.01 * seed) for seed in (1, 2, 3)}
        self.assertEqual(means.difference(dict(found), found, "accuracy"), ["+0.00", ""])

    def test_the_picture_of_the_default_leaves_out_cells_without_several_seeds(self):
        first, second, *_ = default_tables.CELLS
        runs = default_tables.runs([1, 2], [first]) + default_tables.runs([1], [second])
        rows = {run: row(0.8 + 0.01 * run.seed) for run in runs}
        found = default_picture.points(rows, "rotated")
        self.assertEqual(found, {(first, rate): (0.0, 0.0) for rate in first.rates})

    def test_a_short_table_shows_differences_to_float(self):
        runs = settings.sweep(256, 1, "Adam", ["float", "correlated, clip 2.5", "rotated"])
        runs = [dataclasses.replace(run, seed=1) for run in runs if run.rate == 0.01]
        rows = {run: row(0.8 - 0.01 * count) for count, run in enumerate(runs)}
        self.assertEqual(
            summary.tuned(rows, "batches").splitlines()[::2],
            [
                "| batch_size | optimizer | float, test accuracy / % | ternary, clip 2.5 |",
                "| 256 | Adam | 80.00 | -1.00 |",
            ],
        )

    def test_accuracy_stands_beside_bytes(self):
        ways = ["float", "correlated, clip 0", "0.1 bits"]
        runs = settings.workers(256, 1, ["lenet"], [4], ways, [1, 2])
        rows = {run: row(0.8) for run in runs}
        for run, compression in zip(runs[2:], (None, 50.0, 100.0, 300.0), strict=True):
            if compression:
                rows[run]["compression"] = compression
        cells = [line.split(" | ") for line in tables.budgets(rows).splitlines()[2:]]
        # Runs of an older version, without bytes, are left out.
        self.assertEqual(
            [(line[1], line[3], line[4]) for line in cells],
            [("float", "1", "2"), ("correlated, clip 0", "50", "1"), ("0.1 bits", "200", "2")],
        )
        self.assertEqual(tables.workers(rows).count("| 0.1 bits |"), 0)
        points = tables.budget_points(rows)
        self.assertEqual(points, {"lenet": [(1, [0.8, 0.8]), (50, [0.8]), (200, [0.8, 0.8])]})

    def test_page_and_picture_show_the_runs_of_the_checkout(self):
        rows = fidelity_rows.Rows(ROOT / "benchmarks/results/fidelity.jsonl")
        page, short = (
            (ROOT / f"docs/results/{name}.md").read_text(encoding="utf-8")
            for name in ("fidelity", "accuracy")
        )
        of_default = fidelity_rows.Rows(ROOT / "benchmarks/results/default_gradients.jsonl")
        self.assertEqual(set(default_tables.runs(range(1, 6))), set(of_default))
        self.assertIn(default_tables.table(of_default), short)
        for table in summary.of_page(rows):
            self.assertIn(table, page)
        points = tables.budget_points(rows)
        self.assertEqual(set(points), set(budget_picture.NETS))
        for name in pages.PAGES:
            (panel,) = budget_picture.draw(rows, name).axes
            lines = {bars.get_label(): bars.lines[0] for bars in panel.containers}
            for net, found in points.items():
                self.assertEqual(list(lines[net].get_xdata()), [fewer for fewer, _ in found])
                means = [100 * float(np.mean(accuracies)) for _, accuracies in found]
                np.testing.assert_allclose(np.array(lines[net].get_ydata(), float), means)
            drawn = (ROOT / f"docs/images/budgets_{name}.svg").read_text(encoding="utf-8")
            for net in points:
                self.assertIn(f">{net}</text>", drawn)

    def test_picture_of_the_default_shows_its_runs(self):
        rows = fidelity_rows.Rows(ROOT / "benchmarks/results/default_gradients.jsonl")
        table = default_tables.table(rows)
        for name in pages.PAGES:
            (panel,) = default_picture.draw(rows, name).axes
            drawn = (ROOT / f"docs/images/accuracy_{name}.svg").read_text(encoding="utf-8")
            for bars, (label, *_) in zip(
                panel.containers, default_picture.WAYS.values(), strict=True
            ):
                self.assertEqual(bars.get_label(), label)
                self.assertIn(f">{label}</text>", drawn)
                for points in bars.lines[0].get_xdata():
                    self.assertIn(f"| {points:+.2f} (", table)
            ticks = [text.get_text() for text in panel.get_yticklabels()]
            self.assertEqual(ticks[0], "SGD, 0.1")
            self.assertEqual(len(ticks), 6)

    def test_each_run_is_in_its_table(self):
        kinds = settings.sweep(256, 1, "Adam", ["float"], net="vit")
        large = settings.sweep(256, 1, "SGD, momentum 0.9", ["float"], batch=1024)
        usual = settings.sweep(256, 1, "SGD, momentum 0.9", ["float"])
        mixed = [dataclasses.replace(run, precision="mixed_bfloat16") for run in usual]
        workers = settings.workers(256, 1, ["small_cnn"], [4], ["float"], [0])
        rows = {run: row(0.5) for run in [*kinds, *large, *usual, *mixed, *workers]}
        for table, expected in (
            ("kinds", ["| vit | Adam | float |"]),
            ("batches", [f"| {batch} | SGD, momentum 0.9 | float |" for batch in (256, 1024)]),
            (
                "precisions",
                [
                    f"| {name} | SGD, momentum 0.9 | float |"
                    for name in ("float32", "mixed_bfloat16")
                ],
            ),
        ):
            with self.subTest(table):
                lines = tables.rates(rows, table).splitlines()[2:]
                self.assertEqual(len(lines), len(expected))
                for line, start in zip(lines, expected, strict=True):
                    self.assertEqual(line[: len(start)], start)

    def test_test_text_comes_from_other_files(self):
        text = source_text.load(80, 16)
        for split, count in (("train", 80), ("test", 16)):
            snippets, labels = text[split]
            self.assertEqual(snippets.shape, (count, source_text.LENGTH))
            self.assertTrue(((snippets >= 0) & (snippets < 256)).all())
            expected = [count // len(source_text.PACKAGES)] * len(source_text.PACKAGES)
            self.assertEqual(np.bincount(labels).tolist(), expected)
        again = source_text.load(80, 16)
        np.testing.assert_array_equal(again["train"][0], text["train"][0])
        with self.assertRaisesRegex(ValueError, "needed"):
            source_text.load(10**8, 16)

    @pytest.mark.long
    def test_finished_runs_are_not_repeated(self):
        folder = self.folder()
        samples.write_mnist(folder / "raw", 300, 50)
        command = [
            *(sys.executable, "-m", "benchmarks.fidelity", f"--raw_dir={folder / 'raw'}"),
            *(f"--folder={folder}", "--tables=budgets", "--nets=small_cnn", "--workers=2"),
            *("--images=256", "--epochs=1", "--seeds=1,2", "--gradients=float"),
            "--gradients=0.3 bits",
        ]
        first, second = (
            subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout
            for _ in range(2)
        )
        self.assertEqual(first.count(" s)\n"), 4, first)
        table = first[first.index("\n| network") :]
        self.assertEqual(second, table)
        self.assertEqual(table.count("| small_cnn | "), 2)
        rows = fidelity_rows.Rows(folder / "runs.jsonl")
        for run, found in rows.items():
            # Float gradients have one worker, which receives no bytes.
            least = 1 if run.gradients == "float" else 30
            self.assertGreaterEqual(found["compression"], least)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
