"""Argument parsing, error reports and exit statuses of the data programs."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TextIO

from slim_data.cli import help_arguments, legacy_flags
from slim_data.common.errors import DataError, printable
from slim_data.common.lazy import tf

STATUS_ERROR = 2
STATUS_INTERRUPTED = 130  # the shells' convention


class _Parser(help_arguments.Parser):
    def error(self, message):
        # argparse would print several lines of usage before the message.
        raise DataError(f"{message} (--help shows the usage)")


def console_command(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    main: Callable[[argparse.Namespace], None],
) -> Callable[[], NoReturn]:
    """Returns an entry point that calls `run_program` and ends the process."""

    def run() -> NoReturn:
        # `terngrad` puts the subcommand's name here.
        is_subcommand = " " in os.path.basename(sys.argv[0])
        typed = sys.argv[0] if is_subcommand else name
        sys.exit(run_program(typed, description, add_arguments, main))

    return run


def run_program(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    main: Callable[[argparse.Namespace], None],
    arguments: Sequence[str] | None = None,
) -> int:
    """Parses the command line and calls a program's main function.

    Prints errors in arguments or data as one line on standard error.

    Args:
        arguments: default: the process's.

    Returns:
        The exit status: 0, 2 for an error that the user can fix, or 130 after Ctrl-C.
    """
    # Otherwise TensorFlow's start-up notes hide the program's lines.
    tf.load_for_program()
    parser = _Parser(
        prog=name,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    try:
        values = parser.parse_args(arguments)
        main(values)
    except DataError as error:
        return _fail(name, error)
    except OSError as error:
        return _fail(name, f"{error.filename or 'a file'}: {error.strerror or error}")
    except MemoryError:
        return _fail(name, "this machine has too little memory")
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr, flush=True)
        return STATUS_INTERRUPTED
    return 0


def _fail(name, reason):
    print(f"{name}: error: {printable(reason)}", file=sys.stderr, flush=True)
    return STATUS_ERROR


def add_boolean(
    parser: argparse.ArgumentParser, name: str, text: str, default: bool | None = False
) -> None:
    """Adds a flag that accepts `--x`, `--x True`, `--x=False` and `--nox`."""
    kind = {"nargs": "?", "const": True, "type": _boolean, "metavar": "True"}
    parser.add_argument(f"--{name}", **kind, default=default, help=text)
    parser.add_argument(
        f"--no{name}", dest=name, action="store_false", default=default, help=argparse.SUPPRESS
    )


def _boolean(text):
    if text.lower() not in legacy_flags.VALUES:
        raise argparse.ArgumentTypeError(f"must be True or False. Received: {text!r}")
    return text.lower() in ("true", "t", "1")


def report(line: object, file: TextIO | None = None) -> None:
    """Prints and flushes a line to `file`, by default standard output."""
    print(printable(line), file=file, flush=True)
