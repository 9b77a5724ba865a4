"""Starts a command that continues after its terminal closes, and stops commands started before.

    python -m terngrad_tf.bin.jobs.background start --pid_file FILE --log_file FILE -- COMMAND ...
    python -m terngrad_tf.bin.jobs.background stop PID_FILE [PID_FILE ...]

A pid file holds the process's id, its start time, and the machine's boot id, so that a later
process with the same id is never mistaken for it. Processes are never ended by name. Linux only.
"""

import argparse
import contextlib
import fcntl
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence

from slim_data.cli import help_arguments
from slim_data.common.errors import printable
from terngrad_tf.common import files

# Errors in a command, such as a missing program or an invalid flag, appear soon.
_WATCH_SECONDS = 3.0
_LOG_END_BYTES = 4096
# Process id, start time, boot id; "None" if the process had already ended.
_PID_FILE = re.compile(rb"([0-9]{1,10}) ([0-9]+ [0-9a-f-]+|None)\s*")
_LONGEST_PID_FILE = 200
_START_TIME = 19  # field 22 of /proc/PID/stat; the fields after the name begin with the third


class BackgroundError(Exception):
    """An error that the user can fix, on one line."""


def start(
    pid_file: str | os.PathLike,
    log_file: str | os.PathLike,
    command: Sequence[str],
    watch_seconds: float = _WATCH_SECONDS,
) -> int:
    """Starts `command` in a new session and appends its output to `log_file`.

    Args:
        pid_file: path of the file that `stop` reads.
        log_file: path of the log.
        command: list of str.
        watch_seconds: a process that fails within this time counts as not started. Default 3.

    Returns:
        The process's id.

    Raises:
        BackgroundError: the pid file names a running process, or the command does not exist or
            failed at once.
    """
    pid_file, log_file = pathlib.Path(pid_file), pathlib.Path(log_file)
    for folder in (pid_file.parent, log_file.parent):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BackgroundError(f"{folder}: {error.strerror}") from error
    with _locked(pid_file.parent):
        if running := _running(pid_file):
            raise BackgroundError(f"{pid_file}: process {running} still runs; stop it first")
        process = _started(pid_file, log_file, command)
    try:
        status = process.wait(watch_seconds)
    except subprocess.TimeoutExpired:
        return process.pid
    if status:
        with _locked(pid_file.parent):
            if _running(pid_file) is None:
                pid_file.unlink(missing_ok=True)
        raise BackgroundError(
            f"the command ended at once with status {status}; {log_file} ends with:"
            f" {_last_line(log_file)}"
        )
    return process.pid


@contextlib.contextmanager
def _locked(folder):
    """Lets one process at a time start commands in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _started(pid_file, log_file, command):
    with _opened_log(log_file) as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BackgroundError(f"cannot start {command[0]!r}: {error.strerror}") from error
    try:
        with files.atomic_write(pid_file) as part:
            part.write_text(f"{process.pid} {_identity(process.pid)}\n", encoding="ascii")
    except OSError as error:
        # A process that cannot be stopped later must not run.
        _signal(process.pid, signal.SIGKILL)
        process.wait()
        raise BackgroundError(f"{pid_file}: {error.strerror}") from error
    return process


def _opened_log(path):
    """Opens the log for appending; refuses pipes, which may have no reader."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise BackgroundError(
            f"{path}: must be a file that can be written to: {error.strerror}"
        ) from error
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BackgroundError(f"{path}: must be a file that can be written to")
    os.set_blocking(descriptor, True)
    return open(descriptor, "ab")


def _last_line(log_file):
    with log_file.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_END_BYTES))
        lines = log.read().decode("utf-8", "replace").split("\n")
    return printable(next((line for line in reversed(lines) if line.strip()), "nothing"))


def stop(pid_file: str | os.PathLike, grace_seconds: float = 15.0) -> int | None:
    """Ends the process of a pid file and its session, then removes the file.

    Sends SIGTERM, then SIGKILL if the process does not end.

    Args:
        pid_file: path of the file that `start` wrote.
        grace_seconds: seconds between the two signals. Default 15.

    Returns:
        The process's id; None if it had already ended.
    """
    pid_file = pathlib.Path(pid_file)
    pid = _running(pid_file)
    if pid is not None:
        _signal(pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while _running(pid_file) and time.monotonic() < deadline:
            time.sleep(0.05)
        if _running(pid_file):
            _signal(pid, signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        pid_file.unlink()
    return pid


def _signal(pid, number):
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise BackgroundError(f"process {pid} belongs to another user") from error


def _running(pid_file):
    """Returns the id of the process that the file names; None if the process is gone."""
    try:
        with files.open_regular(pid_file) as file:
            content = _PID_FILE.fullmatch(file.read(_LONGEST_PID_FILE))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BackgroundError(f"{pid_file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BackgroundError(str(error)) from error
    if content is None:
        raise BackgroundError(f"{pid_file}: not a pid file of this program")
    pid, identity = int(content[1]), content[2].decode()
    return pid if pid > 1 and identity == _identity(pid) else None


def _identity(pid):
    """Returns start time and boot id of a process; None if it is gone or a zombie.

    psutil reports start times by the clock, which may be changed; ticks since boot are stable.
    """
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text.rpartition(")")[2].split()
    if state == "Z":
        return None
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{fields[_START_TIME - 1]} {boot}"


def main(argv: Sequence[str]) -> int:
    """Runs the program; `argv` is its command line. Returns the exit status."""
    description = __doc__.split("\n")[0]
    parser = help_arguments.Parser(prog="background", description=description)
    commands = parser.add_subparsers(
        dest="action", required=True, parser_class=argparse.ArgumentParser
    )
    starting = commands.add_parser("start", help="Start a command.")
    starting.add_argument("--pid_file", required=True, help="File for the process's id.")
    starting.add_argument("--log_file", required=True, help="File to append the output to.")
    starting.add_argument("command", nargs="+", help="The command, after --.")
    stopping = commands.add_parser("stop", help="Stop commands.")
    stopping.add_argument("pid_files", nargs="+", metavar="PID_FILE")
    values = parser.parse_args(argv[1:])
    try:
        if values.action == "start":
            pid = start(values.pid_file, values.log_file, values.command)
            print(f"started process {pid}, log {values.log_file}", flush=True)
        else:
            for pid_file in values.pid_files:
                pid = stop(pid_file)
                print(f"{pid_file}: {f'stopped {pid}' if pid else 'Stopped already.'}", flush=True)
    except BackgroundError as error:
        print(f"background: error: {printable(error)}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
