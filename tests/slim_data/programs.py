"""Runs programs in the test's process, which saves loading TensorFlow again."""

import contextlib
import importlib
import io
from typing import NamedTuple
from unittest import mock


class Done(NamedTuple):
    """Result of a program."""

    status: int
    stdout: str
    stderr: str


def call(module, *arguments):
    """Runs the program of a slim_data module with a command line."""
    program = importlib.import_module(f"slim_data.{module}")
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.argv", [module, *map(str, arguments)]),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            program.run()
        except SystemExit as ending:
            return Done(ending.code or 0, stdout.getvalue(), stderr.getvalue())
    return Done(0, stdout.getvalue(), stderr.getvalue())
