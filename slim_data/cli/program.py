"""Argument parsing, error reports and exit statuses of the data programs."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TextIO

from slim_data.cli import help_arguments, legacy_flags
from slim_data.common.closed_output import ending_with_its_reader
from slim_data.common.errors import DISK_ERRORS, DataError, printable
from slim_data.common.lazy import tf

STATUS_ERROR = 2
STATUS_DISK = 4
STATUS_INTERRUPTED = 130  # the shells' convention


class _Parser(help_arguments.Parser):
    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        # Shells expand no ~ after "=" or quotes.
        self.register("type", "path", os.path.expanduser)

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
        with ending_with_its_reader():
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
        add_arguments: receives a parser whose arguments of `type="path"` expand a leading "~".
        arguments: default: the process's.

    Returns:
        The exit status: 0; 2 for an error that the user can fix; 4 if a file could not be written,
        as on a full disk; or 130 after Ctrl-C.
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
        return _fail(name, error, STATUS_DISK if _is_of_disk(error) else STATUS_ERROR)
    except OSError as error:
        status = STATUS_DISK if _is_of_disk(error) else STATUS_ERROR
        return _fail(name, f"{error.filename or 'a file'}: {error.strerror or error}", status)
    except MemoryError:
        return _fail(name, "this machine has too little memory")
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr, flush=True)
        return STATUS_INTERRUPTED
    return 0


def _fail(name, reason, status=STATUS_ERROR):
    print(f"{name}: error: {printable(reason)}", file=sys.stderr, flush=True)
    return status


def _is_of_disk(error):
    """Returns True if an error comes from a file that could not be written."""
    while error is not None:
        if isinstance(error, OSError):
            if error.errno in DISK_ERRORS:
                return True
            # TensorFlow's errors have words only.
            if error.errno is None and any(os.strerror(n) in str(error) for n in DISK_ERRORS):
                return True
        error = error.__cause__ or error.__context__
    return False


def add_boolean(
    parser: argparse.ArgumentParser, name: str, text: str, default: bool | None = False
) -> None:
    """Adds a flag that accepts `--x`, `--x True`, `--x=False` and `--nox`."""
    kind = {"nargs": "?", "const": True, "type": _boolean, "metavar": "True"}
    parser.add_argument(f"--{name}", **kind, default=default, help=text)
    parser.add_argument(
        f"--no{name}", dest=name, action="store_false", default=default, help=argparse.SUPPRESS
    )


def add_num_processes(parser: argparse.ArgumentParser) -> None:
    """Adds `--num_processes`."""
    parser.add_argument(
        "--num_processes", type=int, help="maximum number of processes (default: one per core)"
    )


def _boolean(text):
    if text.lower() not in legacy_flags.VALUES:
        raise argparse.ArgumentTypeError(f"must be True or False. Received: {text!r}")
    return text.lower() in ("true", "t", "1")


def report(line: object, file: TextIO | None = None) -> None:
    """Prints and flushes a line to `file`, by default standard output; ends without a reader."""
    # Here, as callers turn errors of files into others.
    with ending_with_its_reader():
        print(printable(line), file=file, flush=True)
