"""The pages on reliability show the figures of `benchmarks.chaos`."""

import json
import pathlib
import sys
import unittest

import pytest

from benchmarks.chaos import picture, tables
from benchmarks.lib import pages

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ChaosResultsTest(unittest.TestCase):
    def test_summary_has_a_row_for_each_kind(self):
        incidents = [
            [["killed"], 2.0, 1.0],
            [["killed"], 4.0, 5.0],
            [["away", "killed"], 3.0, 0.0],
            [["split"], None, 7.0],
        ]
        rows = tables.summary(incidents)
        self.assertEqual([row["incident"] for row in rows], ["killed", "split", "two at once"])
        self.assertEqual((rows[0]["median_seconds"], rows[0]["longest_seconds"]), (3, 4))
        table = tables.incidents(rows)
        self.assertIn("| killed | 2 | 3.0 | 4.0 | 3.0 | 5.0 |", table)
        self.assertIn("| split | 1 | - | - | 7.0 | 7.0 |", table)
        alone = tables.incidents(tables.summary([[["killed"], 2.0, None]]))
        self.assertIn("| killed | 1 | 2.0 | 2.0 |", alone)

    def test_page_and_picture_show_the_figures(self):
        text = (ROOT / "benchmarks/results/chaos.json").read_text(encoding="utf-8")
        content = json.loads(text)
        rows = content["rows"]
        self.assertEqual(sum(row["count"] for row in rows), content["settings"]["incidents"])
        page = (ROOT / "docs/results/incidents.md").read_text(encoding="utf-8")
        self.assertIn(tables.incidents(rows), page)
        for name in pages.PAGES:
            (panel,) = picture.draw(rows, name).axes
            (bars,) = panel.containers
            medians = [row["median_seconds"] for row in rows]
            self.assertEqual(list(bars.lines[0].get_xdata()), medians)
            drawn = (ROOT / f"docs/images/incidents_{name}.svg").read_text(encoding="utf-8")
            for row in rows:
                self.assertIn(row["incident"].replace("_", " "), drawn)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
