"""Valid and invalid secrets of a cluster."""

import pathlib
import sys
import tempfile
import unittest

import pytest

from terngrad_tf.common import tokens


class TokensTest(unittest.TestCase):
    def test_invalid_tokens_are_refused_and_not_shown(self):
        longest = "x" * 1000
        for token in ("a secret of many letters", longest, 8 * "a b"):
            self.assertEqual(tokens.checked(token, "`token`"), token)
        for token in (
            16 * " ",
            "  a secret of many letters",
            "a secret of many letters ",
            "a secret\nof many letters",
            "a secret of many letters\x7f",
            "a sécret of many letters",
            "fifteen letters",
            longest + "x",
            "",
            None,
            10**20,
            b"a secret of many letters",
        ):
            with self.assertRaisesRegex(
                ValueError, r"^`token` must hold a token of 16 .*$"
            ) as told:
                tokens.checked(token, "`token`")
            self.assertNotIn("secret", str(told.exception))

    def test_a_file_holds_a_token_and_optionally_a_newline(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "token")
            for content in (b"a secret of many letters\n", b"a secret of many letters\r\n"):
                path.write_bytes(content)
                self.assertEqual(tokens.token_from_file(path), "a secret of many letters")
            for content in (b"", 16 * b" " + b"\n", b"a secret of many letters \n", b"\xff" * 20):
                path.write_bytes(content)
                with self.assertRaisesRegex(ValueError, f"^the file {path} must hold a token"):
                    tokens.token_from_file(path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
