"""What benchmarks share: turns of modes, files of finished runs, tables and means."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

import pytest

from benchmarks.lib import figures, markdown, means, measuring


class LibTest(unittest.TestCase):
    def test_each_round_begins_with_the_next_mode(self):
        rounds = dict.fromkeys("abc", 2)
        self.assertEqual("".join(measuring.in_turn(rounds)), "abcbca")
        self.assertEqual("".join(measuring.in_turn({"a": 3, "b": 1})), "abaa")

    def test_finished_runs_are_kept_and_the_others_are_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "runs.json")
            runs = figures.Finished(path, {"steps": 2}, command="python")
            self.assertFalse(path.exists())
            runs.add({"way": "a", "seed": 1}, {"way": "b", "seed": 1}, costs=3)
            content = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual(content["runs"], runs.data)
            self.assertEqual((content["command"], content["costs"]), ("python", 3))
            again = figures.Finished(path, {"steps": 2})
            self.assertEqual(list(again), runs.data)
            with contextlib.redirect_stdout(io.StringIO()) as said:
                found = again.missing([("a", 1), ("a", 2)], "way", "seed")
            self.assertEqual(found, [("a", 2)])
            self.assertEqual(said.getvalue(), "2 runs are done, 1 are missing\n")
            with self.assertRaisesRegex(SystemExit, "holds runs with other settings"):
                figures.Finished(path, {"steps": 3})

    def test_without_a_file_runs_stay_in_memory(self):
        runs = figures.Finished(None, {}, "rows")
        runs.add({"way": "a"})
        self.assertEqual(list(runs), [{"way": "a"}])

    def test_tables_have_a_column_for_each_title(self):
        table = markdown.table("mode | ms", [["a", 1], ["b", "2.0"]])
        self.assertEqual(table, "| mode | ms |\n|---|---|\n| a | 1 |\n| b | 2.0 |")

    def test_a_single_value_has_neither_deviation_nor_range(self):
        self.assertEqual(means.with_deviation([1.0, 3.0], 1), "2.0 ± 1.4")
        self.assertEqual(means.with_range([1.0, 3.0], 1), "2.0 (1.0 to 3.0)")
        self.assertEqual((means.with_deviation([2], 1), means.with_range([2], 1)), ("2.0", "2.0"))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
