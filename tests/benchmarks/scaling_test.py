"""The page on scale shows the figures of `benchmarks.scaling`."""

import json
import pathlib
import sys
import unittest

import pytest

from benchmarks.lib import pages
from benchmarks.scaling import picture, tables

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ScalingTest(unittest.TestCase):
    def test_page_and_picture_show_the_figures(self):
        text = (ROOT / "benchmarks/results/scaling.json").read_text(encoding="utf-8")
        rows = json.loads(text)["rows"]
        page = (ROOT / "docs/results/scale.md").read_text(encoding="utf-8")
        self.assertIn(tables.predictions(rows), page)
        self.assertIn(tables.checks(rows), page)
        for name in pages.PAGES:
            (panel,) = picture.draw(rows, name).axes
            drawn = {line.get_label(): list(line.get_ydata()) for line in panel.lines}
            for mode in picture.MODES:
                wanted = tables.predicted(rows, mode)
                self.assertEqual(drawn.pop(mode), list(wanted.values()))
            measured = [row["milliseconds"] for row in rows if row["kind"] == "check"]
            self.assertEqual(drawn, {"measured": measured})
            written = ROOT / f"docs/images/scale_{name}.svg"
            self.assertIn(">bidirectional</text>", written.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
