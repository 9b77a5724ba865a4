"""Parses flags, reports errors and ends, for each program."""

import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from absl import flags

from slim_data import DataError
from slim_data.cli import legacy_flags
from slim_data.common.captured_stderr import capture_stderr
from slim_data.common.closed_output import ending_with_its_reader
from slim_data.common.uncollected import without_collections
from terngrad_tf.common import files, messages, preemption
from terngrad_tf.common.last_line import (
    STATUS_INTERRUPTED,
    flush_or_drop,
    is_interrupt,
    one_line,
    write_last_line,
)
from terngrad_tf.common.terminal import wrapped
from terngrad_tf.launcher import supervisor
from terngrad_tf.training.errors import DivergedError, UserError, write_failure
from terngrad_tf.version import __version__

STATUS_DIVERGED = 1
STATUS_ERROR = 2
STATUS_DISK = 4
_GOES_ON = "the same command goes on"


@dataclasses.dataclass(frozen=True)
class Program:
    """A command-line program; for its parts, see `run_program`."""

    description: str
    define_flags: Callable[..., None]
    body: Callable[..., object]
    module: str | None = None
    takes_words: bool = False

    def main(self, argv: Sequence[str], **options: Any) -> int:
        """Runs the program; `argv` starts with its name. Returns the exit status."""
        return run_program(
            self.description,
            self.define_flags,
            self.body,
            argv,
            self.module,
            takes_words=self.takes_words,
            **options,
        )

    def run(self) -> NoReturn:
        """Entry point of the console command: ends this process with the status of the program."""
        with ending_with_its_reader():
            status = self.main(sys.argv, report=write_last_line)
        flush_or_drop(sys.stdout)
        flush_or_drop(sys.stderr)
        sys.exit(status)


def _print_error(line):
    # On a full disk, the status is enough.
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def run_program(
    description: str,
    define_flags: Callable[[flags.FlagValues], None],
    main: Callable[..., object],
    argv: Sequence[str],
    module: str | None = None,
    report: Callable[[str], object] = _print_error,
    takes_words: bool = False,
) -> int:
    """Parses flags and calls a program's main function.

    Reports a wrong flag, folder or file as one line on standard error. Also handles `--help`,
    `--helpshort`, `--helpfull`, `--helpxml` and `--version`.

    Args:
        define_flags: function of an `absl.flags.FlagValues`.
        main: function of the parsed flags and, if the program `takes_words`, of a list of the words
            that are not flags.
        argv: the command line, the program's name first.
        module: name under which --max_restarts restarts the program where it cannot fork. Default:
            no such flag.
        report: function of the line that says why the program failed.

    Returns:
        The exit status: 0; 1 if training diverged; 2 for an error that the user can fix; 3 if
        another host of the cluster failed or is gone; 4 if a file could not be written, as on a
        full disk; 75 if training saved and stopped because of SIGTERM, 76 to continue with more
        workers; 130 after Ctrl-C; 128 plus the signal's number if a signal ended the process that
        --max_restarts started.
    """
    name = os.path.splitext(os.path.basename(argv[0]))[0]

    def fail(error, status):
        line = messages.with_code(f"{one_line(name)}: error: {one_line(error)}")
        report(wrapped(line, sys.stderr))
        return status

    values = flags.FlagValues()
    define_flags(values)
    _define_help(values)
    try:
        _check_arguments(argv[1:])
        words = values(legacy_flags.rewrite(argv, values))[1:]
        if words and not takes_words:
            raise flags.Error(f"flags start with --. Received: {words[0]!r}")
    except (flags.Error, ValueError) as error:  # such as a --flagfile that is no text
        return fail(error, STATUS_ERROR)
    if _has_told(name, description, values):
        return 0
    restarts = values.max_restarts if module is not None else 0
    if restarts and not supervisor.can_supervise():
        line = "`max_restarts` must be 0, since this system is not Linux; see `terngrad run --help`"
        return fail(f"{line}. Received: max_restarts={restarts}", STATUS_ERROR)
    if restarts and not supervisor.may_fork():
        command = [sys.executable, "-m", str(module), *argv[1:], "--max_restarts=0"]
        return _supervise(name, command, restarts) or 0
    # Overrides the user's setting.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        # Not before: --help and a mistyped flag do not load TensorFlow.
        with capture_stderr(), without_collections():
            from terngrad_tf.distribute import PeerError  # noqa: F401 (loads TensorFlow)
        if restarts and (status := _supervise(name, None, restarts)) is not None:
            return status
        try:
            main(values, words) if takes_words else main(values)
        except Exception as error:
            found = _line_and_status(error)
            if found is None:
                raise
            return fail(*found)
    except KeyboardInterrupt:
        return fail(f"interrupted; {_GOES_ON}", STATUS_INTERRUPTED)
    return 0


def _line_and_status(error):
    """Returns the line and the exit status for an error of a program, or None for a bug."""
    from terngrad_tf.distribute import NewcomersError, PeerError

    if isinstance(error, (UserError, DataError)):
        return error, STATUS_ERROR
    if isinstance(error, DivergedError):
        return error, STATUS_DIVERGED
    if isinstance(error, preemption.PreemptedError):
        return f"{error}; {_GOES_ON}", preemption.STATUS
    if isinstance(error, NewcomersError):
        return f"{error}; {_GOES_ON}", supervisor.STATUS_NEWCOMERS
    if isinstance(error, PeerError):
        return error, supervisor.STATUS_PEER
    if line := write_failure(error):
        return f"{line}; {_GOES_ON}", STATUS_DISK
    if is_interrupt(error):
        return f"interrupted; {_GOES_ON}", STATUS_INTERRUPTED
    return None


def _supervise(name, command, max_restarts):
    """Restarts a command, or this program in forks, which need not load TensorFlow."""
    return supervisor.supervise(command, max_restarts, lambda line: _print_error(f"{name}: {line}"))


def _define_help(values):
    """Defines the flags of all programs built on absl."""
    flags.DEFINE_bool("help", False, "Show this text.", short_name="h", flag_values=values)
    for name, text in (
        ("helpshort", "Show this text."),
        ("helpfull", "Show this text."),
        ("helpxml", "Show the flags as XML."),
        ("version", "Show the version."),
    ):
        flags.DEFINE_bool(name, False, text, flag_values=values)


def _has_told(name, description, values):
    """Prints the help or the version if the flags ask for one; returns whether they do."""
    if values.help or values.helpshort or values.helpfull:
        print(f"{name}: {description}\n\nFlags:\n{values.get_help()}")
    elif values.helpxml:
        values.write_help_in_xml_format(sys.stdout)
    elif values.version:
        print(f"{name} {__version__}")
    else:
        return False
    return True


def _check_arguments(arguments):
    """Refuses arguments that absl and TensorFlow would not refuse in one line."""
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise flags.Error(f"arguments must be text in UTF-8. Received: {argument!r}") from error
        flag, has_value, value = argument.partition("=")
        if flag in ("--flagfile", "-flagfile"):
            try:
                files.open_regular(os.path.expanduser(value if has_value else following)).close()
            except OSError as error:
                raise flags.Error(f"--flagfile cannot be read: {error}") from error
