"""JSON of unknown origin is read in full or refused with a reason."""

import json
import os
import pathlib
import sys
import tempfile
import unittest

import hypothesis
import pytest
from hypothesis import strategies as st

from terngrad_tf.common import strict_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**29), 10**29)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class StrictJsonTest(unittest.TestCase):
    @hypothesis.given(VALUES)
    def test_json_round_trip(self, value):
        hypothesis.assume("Infinity" not in (text := json.dumps(value)))
        self.assertEqual(strict_json.parse_json(text), value)
        self.assertEqual(strict_json.parse_json(text.encode()), value)

    @hypothesis.given(st.binary())
    def test_any_bytes_are_read_or_refused(self, content):
        try:
            strict_json.parse_json(content)
        except ValueError:
            pass

    def test_each_rule_has_its_reason(self):
        for text, reason in (
            ("[" * 33 + "]" * 33, "more than 32 deep"),
            ("[" * 100_000, "more than 32 deep"),
            ('{"a":' * 100_000, "more than 32 deep"),
            ("1" * 400, "more than 30 digits: 1{40}\\.\\.\\."),
            ("-" + "1" * 31, "more than 30 digits"),
            ("1e400", "too large: 1e400"),
            ("NaN", "NaN is not a number"),
            ("-Infinity", "-Infinity is not a number"),
            ('{"a": {"b": 1, "c": 2, "b": 3}}', "`b` is given twice"),
            (b"\xff", "not UTF-8: byte 0"),
            (b"\xef\xbb\xbf{}", "BOM"),
            ("", "Expecting value"),
            ("{", "Expecting property name"),
            ('["\\ud800"]', "not Unicode"),
            ('{"\udcff": 1}', "not Unicode"),
            (" " * (strict_json.MAX_BYTES + 1), "longer than"),
        ):
            with self.subTest(reason=reason), self.assertRaisesRegex(ValueError, reason):
                strict_json.parse_json(text)
        self.assertEqual(
            strict_json.parse_json("[" * 32 + "]" * 32)[0][0],
            strict_json.parse_json("[" * 30 + "]" * 30),
        )

    def test_only_files_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "config.json")
            path.write_text('{"a": [1]}')
            self.assertEqual(strict_json.read_json(path), {"a": [1]})
            os.mkfifo(f"{folder}/pipe")
            for name, reason in (
                (folder, "must be a regular file"),
                (f"{folder}/pipe", "must be a regular file"),
                ("/dev/zero", "must be a regular file"),
                (f"{folder}/\0", "not a path: embedded null byte"),
                (f"{folder}/\udcff\ud800", "not text in UTF-8"),
            ):
                with self.subTest(name=name), self.assertRaisesRegex(ValueError, reason):
                    strict_json.read_json(name)
            with self.assertRaises(FileNotFoundError):
                strict_json.read_json(f"{folder}/none")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
