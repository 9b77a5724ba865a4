"""Programs based on argparse have the help flags of programs based on absl."""

import contextlib
import io
import sys
import unittest
from xml.etree import ElementTree

import pytest

from slim_data.cli import help_arguments
from slim_data.common.version import __version__


def output_of(flag):
    """Returns the output of a program and its exit status."""
    parser = help_arguments.Parser(prog="x", description="Does <it>.")
    parser.add_argument("--count", type=int, default=3, help="How many & which.")
    parser.add_argument("file", help="A file.")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            parser.parse_args([flag])
        except SystemExit as end:
            return out.getvalue(), end.code
    raise AssertionError("goes on")


class HelpTest(unittest.TestCase):
    def test_all_help_flags_print_the_same(self):
        text, status = output_of("--help")
        self.assertEqual(status, 0)
        self.assertIn("How many & which.", text)
        for flag in ("-h", "--helpshort", "--helpfull"):
            self.assertEqual(output_of(flag), (text, 0))

    def test_a_value_of_two_dashes_is_an_error(self):
        # argparse would turn the value into an empty list, whatever the argument's type.
        for flag in ("--count", "--unknown"):
            err = io.StringIO()
            with contextlib.redirect_stderr(err), self.assertRaises(SystemExit) as ended:
                help_arguments.Parser(prog="x").parse_args([f"{flag}=--"])
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(f"argument {flag}: expected a value other than --", err.getvalue())
        parser = help_arguments.Parser(prog="x")
        parser.add_argument("--count")
        parser.add_argument("files", nargs="*")
        values = parser.parse_args(["--count=-", "--", "--count=--"])
        self.assertEqual((values.count, values.files), ("-", ["--count=--"]))

    def test_xml_names_every_argument(self):
        text, status = output_of("--helpxml")
        self.assertEqual(status, 0)
        root = ElementTree.fromstring(text)
        self.assertEqual(root.findtext("usage"), "Does <it>.")
        flags = {flag.findtext("name"): flag for flag in root.iter("flag")}
        self.assertEqual(set(flags), {"helpshort", "helpxml", "version", "count", "file"})
        fields = [flags["count"].findtext(field) for field in ("meaning", "default", "type")]
        self.assertEqual(fields, ["How many & which.", "3", "int"])

    def test_version(self):
        self.assertEqual(output_of("--version"), (f"x {__version__}\n", 0))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
