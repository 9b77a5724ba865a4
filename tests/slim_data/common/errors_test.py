"""Texts from files and flags are shown on one line, with control characters escaped."""

import contextlib
import io
import os
import pickle
import sys
import unittest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slim_data import DataError
from slim_data.cli import program
from slim_data.common.errors import MAX_LENGTH, printable
from tests.slim_data import programs

# Includes surrogates: file names that are not valid UTF-8.
ANY_TEXT = st.text(st.characters())


class PrintableTest(unittest.TestCase):
    @given(ANY_TEXT)
    def test_the_result_is_one_printable_line_of_limited_length(self, text):
        for shown in (printable(text), printable(text * 1000)):
            self.assertTrue(shown.isprintable())
            self.assertLessEqual(len(shown), MAX_LENGTH)
            self.assertEqual(printable(shown), shown)
            shown.encode()

    @given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=MAX_LENGTH))
    def test_printable_text_is_unchanged(self, text):
        self.assertEqual(printable(text), text)

    def test_control_characters_are_shown_as_python_writes_them(self):
        for text, shown in (
            ("a\nb\r\tc\0", r"a\nb\r\tc\x00"),
            ("\x1b[2J\x9b", r"\x1b[2J\x9b"),
            ("\u202egpj.exe", r"\u202egpj.exe"),
            ("\udcff", r"\udcff"),
            ("\u2028", r"\u2028"),
            ("größe 花 \\n", "größe 花 \\n"),
        ):
            with self.subTest(shown=shown):
                self.assertEqual(printable(text), shown)

    def test_long_text_keeps_its_beginning_and_its_end(self):
        shown = printable("`x` must be short. Received: x=" + "1" * 10**7 + ". Give a shorter one")
        self.assertEqual(len(shown), MAX_LENGTH)
        self.assertTrue(shown.startswith("`x` must be short. Received: x=11"))
        self.assertIn("1[... ", shown)
        self.assertTrue(shown.endswith("11. Give a shorter one"))

    def test_escapes_count_as_length(self):
        self.assertEqual(len(printable("\U000f0000" * MAX_LENGTH, 200)), 200)


class DataErrorTest(unittest.TestCase):
    def test_errors_are_one_printable_line(self):
        error = DataError(f"/data/a\x1b]0;x\a\nb: {'y' * 10**5}")
        self.assertTrue(str(error).startswith(r"/data/a\x1b]0;x\x07\nb: yyy"))
        self.assertEqual(len(str(error)), MAX_LENGTH)

    def test_errors_pass_between_processes_unchanged(self):
        error = DataError("x" * 10**5)
        self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))

    def test_programs_report_other_errors_in_one_line(self):
        def ending_with(error):
            def main(values):
                raise error

            stderr = io.StringIO()
            with contextlib.redirect_stderr(stderr):
                status = program.run_program("x", "", lambda parser: None, main, [])
            self.assertEqual(status, 2)
            return stderr.getvalue()

        for error, line in (
            (
                PermissionError(13, "Permission denied", "/a\x1b[2J"),
                r"/a\x1b[2J: Permission denied",
            ),
            (OSError("of no file"), "a file: of no file"),
            (MemoryError(), "this machine has too little memory"),
            (DataError("a\nb"), r"a\nb"),
        ):
            self.assertEqual(ending_with(error), f"x: error: {line}\n")

    def test_programs_end_if_nobody_reads_their_lines(self):
        def main(values):
            try:
                program.report("line")
            except OSError as error:  # as where files are written
                raise DataError(error) from error

        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as output, contextlib.redirect_stdout(output):
            with self.assertRaises(SystemExit) as ended:
                program.run_program("x", "", lambda parser: None, main, [])
        self.assertEqual(ended.exception.code, 141)

    def test_programs_show_values_of_flags_escaped_and_shortened(self):
        for value in ("\x1b[2Jmnist", "m" * 10**5, "\udcff"):
            with self.subTest(case=ascii(value[:9])):
                done = programs.call("validate", "--dataset_name", value, "--dataset_dir", value)
                self.assertEqual((done.status, done.stdout), (2, ""))
                self.assertTrue(done.stderr.endswith("\n"))
                self.assertTrue(done.stderr[:-1].isprintable())
                self.assertLess(len(done.stderr), MAX_LENGTH + 50)
                unknown = programs.call("validate", f"--{value}=1")
                self.assertEqual(unknown.status, 2)
                self.assertTrue(unknown.stderr[:-1].isprintable(), unknown.stderr)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
