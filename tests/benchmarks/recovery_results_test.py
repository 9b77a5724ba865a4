"""The page on reliability shows the figures of `benchmarks.recovery`."""

import datetime
import json
import pathlib
import sys
import tempfile
import time
import unittest

import pytest

from benchmarks.recovery import runs, tables

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Logs:
    """Logs of workers, a dict from their numbers to (time, step) of each line."""

    def __init__(self, folder, lines):
        self._folder = folder
        for task, steps in lines.items():
            times = [(datetime.datetime.fromtimestamp(when), step) for when, step in steps]
            text = [f"Worker {task}: {when}: step {step}, loss = 0.1\n" for when, step in times]
            self.log(task).write_text("said\n" + "".join(text))

    def log(self, task):
        return self._folder / f"{task}.log"


class RecoveryTest(unittest.TestCase):
    def test_steps_are_read_and_compared(self):
        now = int(time.time())
        lines = {0: [(1, 5), (2, 6), (9, 5), (10, 6)], 1: [(2, 6), (11, 6)], 2: [(3, 7), (12, 6)]}
        with tempfile.TemporaryDirectory() as folder:
            told = {task: [(now + s, step) for s, step in own] for task, own in lines.items()}
            logs = Logs(pathlib.Path(folder), told)
            found = runs.steps(logs, 0)
            self.assertEqual(found, told[0])
            self.assertEqual(runs.await_common_step(logs, range(3), now + 3), now + 12)
            self.assertEqual(runs.await_common_step(logs, [0, 1], now), now + 11)
            self.assertEqual(runs.repeated(found), 2)

    def test_page_shows_the_figures(self):
        content = json.loads((ROOT / "benchmarks/results/recovery.json").read_text())
        page = (ROOT / "docs/results/reliability.md").read_text(encoding="utf-8")
        self.assertIn(tables.recoveries(content["rows"]), page)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
