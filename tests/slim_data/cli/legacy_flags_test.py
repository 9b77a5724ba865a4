"""Boolean flags written as `--flag True`."""

import sys
import unittest

import pytest
from absl import flags

from slim_data.cli import legacy_flags


class LegacyFlagsTest(unittest.TestCase):
    def parse(self, *arguments):
        values = flags.FlagValues()
        flags.DEFINE_boolean("shard", False, "", flag_values=values)
        flags.DEFINE_string("name", "", "", flag_values=values)
        rest = values(legacy_flags.rewrite(["program", *arguments], values))
        return values.shard, values.name, rest[1:]

    def test_every_spelling_of_a_boolean_is_understood(self):
        for arguments, shard in (
            (["--shard"], True),
            (["--shard", "True"], True),
            (["-shard", "true"], True),
            (["--shard=True"], True),
            (["--shard", "--name", "x"], True),
            (["--shard", "1"], True),
            (["--shard", "False"], False),
            (["--shard", "True", "--shard", "f"], False),
            (["--shard=False"], False),
            (["--noshard"], False),
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.parse(*arguments)[0], shard)

    def test_other_flags_keep_their_values(self):
        self.assertEqual(self.parse("--name", "True", "--shard", "True"), (True, "True", []))
        self.assertEqual(self.parse("--name", "--shard", "x"), (False, "--shard", ["x"]))

    def test_other_arguments_stay(self):
        self.assertEqual(self.parse("--shard", "maybe"), (True, "", ["maybe"]))
        self.assertEqual(self.parse("--", "--shard", "True"), (False, "", ["--shard", "True"]))

    def test_unknown_flags_are_left_to_the_parser(self):
        with self.assertRaises(flags.UnrecognizedFlagError):
            self.parse("--shards", "True")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
