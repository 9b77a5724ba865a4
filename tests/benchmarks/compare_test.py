"""`benchmarks.compare` reports the differences between two files of results."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pytest

from benchmarks import compare

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows(*milliseconds):
    return {
        "machine": "a",
        "rows": [
            {"mode": mode, "hosts": 2, "milliseconds": value, "rounds": 7}
            for mode, value in zip(("ternary", "float32"), milliseconds, strict=True)
        ],
    }


class CompareTest(unittest.TestCase):
    def test_largest_difference_comes_first(self):
        before, after = (compare.rows_by_key(r, ["hosts"]) for r in (rows(40, 100), rows(41, 50)))
        found = compare.changes(before, after)
        self.assertEqual(found[0], (("float32", "2"), "milliseconds", 100, 50))
        self.assertEqual([compare.factor(*change[2:]) for change in found[:2]], [2.0, 41 / 40])

    def test_duplicate_rows_are_refused(self):
        with self.assertRaisesRegex(ValueError, "two of ternary"):
            compare.rows_by_key({"rows": 2 * rows(1, 2)["rows"][:1]}, ["hosts"])
        with self.assertRaisesRegex(ValueError, "must hold rows, runs or cells"):
            compare.rows_by_key({"machine": "a"}, [])

    def test_the_program_prints_a_table_and_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder, name) for name in ("old.json", "new.json")]
            for path, content in zip(paths, (rows(40, 100), rows(41, 50)), strict=True):
                path.write_text(json.dumps(content))
            command = [sys.executable, "-m", "benchmarks.compare", *map(str, paths)]
            run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("| float32 2 | milliseconds | 100 | 50 | 0.50 |", run.stdout)
        self.assertIn("1 of 4 figures moved by a factor of 1.1 or more", run.stdout)

    def test_files_of_results_can_be_compared(self):
        for path in sorted((ROOT / "benchmarks/results").glob("*.json")):
            with self.subTest(path=path.name):
                content = json.loads(path.read_text())
                self.assertIn("command", content)
                found = compare.rows_by_key(content, ["hosts", "rate", "seed"])
                self.assertEqual(len(found), len(content["rows"]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
