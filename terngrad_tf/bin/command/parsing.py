"""Shared by the subcommands of `terngrad`: parsers, and errors in one line."""

import argparse
import sys
from typing import Any

STATUS_ERROR = 2


def make_parser(program: str, description: str, **options: Any) -> argparse.ArgumentParser:
    """Returns a parser whose help keeps the description's lines."""
    return argparse.ArgumentParser(
        prog=program,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )


def fail(program: str, reason: object) -> int:
    """Prints why a command fails; returns its exit status."""
    print(f"{program}: error: {reason}", file=sys.stderr, flush=True)
    return STATUS_ERROR
