"""Fuzzers: parsers and flags get hostile inputs, see `fuzzing`."""
