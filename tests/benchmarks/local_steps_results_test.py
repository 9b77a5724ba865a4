"""The page on local steps shows the results of `benchmarks.local_steps`."""

import collections
import json
import pathlib
import re
import sys
import unittest

import pytest

from benchmarks.local_steps import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(way, rate, seed, accuracy, loss):
    return {
        **{"way": way, "rate": rate, "seed": seed, "accuracy": accuracy, "loss": loss},
        **{"last_accuracy": accuracy, "last_loss": loss, "received_bytes": 1000.0},
    }


class TableTest(unittest.TestCase):
    def test_the_rate_is_that_of_the_lowest_loss(self):
        ways = ("every 8 steps, float", tables.BASELINE)
        runs = [
            run(way, rate, seed, accuracy, loss)
            for way, lost in zip(ways, (0.02, 0), strict=True)
            for rate, loss in ((0.02, 0.5), (0.05, 0.4))
            for seed, accuracy in ((1, 0.9 - lost), (2, 0.91 - lost))
        ]
        _, _, baseline, other = tables.table(runs).split("\n")
        self.assertTrue(baseline.startswith(f"| {tables.BASELINE} | 0.05 | 2 | 90.50 (90.00 to"))
        self.assertIn("| 88.50 (88.00 to 89.00) |", other)
        self.assertIn("| -2.00 |", other)


class PageTest(unittest.TestCase):
    def test_page_shows_the_figures_of_the_runs(self):
        studies = collections.defaultdict(list)
        for name in ("local_steps", "local_steps_rotated"):
            path = ROOT / f"benchmarks/results/{name}.jsonl"
            for line in path.read_text(encoding="utf-8").splitlines():
                found = json.loads(line)
                study = [found.get(key) for key in ("net", "replicas", "epochs", "optimizer")]
                studies[(name, *study)].append(found)
        for study, runs in studies.items():
            keys = [(found["way"], found["rate"], found["seed"]) for found in runs]
            self.assertEqual(len(keys), len(set(keys)), study)
        page = (ROOT / "docs/results/local_steps.md").read_text(encoding="utf-8")
        shown = re.findall(r"^\| exchange \| inner rate \|.*?(?=\n\n)", page, re.M | re.S)
        self.assertGreaterEqual(len(shown), 4)
        found = [tables.table(runs) for runs in studies.values()]
        for table in shown:
            self.assertIn(table, found)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
