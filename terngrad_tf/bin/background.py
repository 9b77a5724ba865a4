"""Starts a command that goes on after its terminal closed, and stops what it started before.

    python -m terngrad_tf.bin.background start --pid_file FILE --log_file FILE -- COMMAND ...
    python -m terngrad_tf.bin.background stop PID_FILE [PID_FILE ...]

A pid file holds the process's number, when it started, and the boot of the machine, so that a
process that got the same number later is never taken for it. Nothing is ever ended by its name.
Linux only.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

_START_TIME = 19  # field 22 of /proc/PID/stat; the fields after the name begin with the third


class BackgroundError(Exception):
    """What the user can mend, in one line."""


def start(pid_file, log_file, command):
    """Starts `command` in a session of its own, its output appended to `log_file`.

    Args:
        pid_file: path of the file that `stop` reads.
        log_file: path of the log.
        command: list of str.

    Returns:
        The process's number.

    Raises:
        BackgroundError: the pid file names a process that runs, or the command does not exist.
    """
    pid_file, log_file = pathlib.Path(pid_file), pathlib.Path(log_file)
    if running := _running(pid_file):
        raise BackgroundError(f"{pid_file}: process {running} still runs; stop it first")
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
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
    part = pid_file.with_name(pid_file.name + ".part")
    part.write_text(f"{process.pid} {_identity(process.pid)}\n", encoding="ascii")
    part.replace(pid_file)
    return process.pid


def stop(pid_file, grace_seconds=15.0):
    """Ends the process of a pid file and all of its session, then removes the file.

    They get SIGTERM, and SIGKILL where that does not end the process.

    Args:
        pid_file: path of the file that `start` wrote.
        grace_seconds: seconds between the two signals. Default 15.

    Returns:
        The process's number; None where it had ended already.
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
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _running(pid_file):
    """The number of the process that the file names, None where that process is gone."""
    try:
        pid, identity = pid_file.read_text(encoding="ascii").strip().split(" ", 1)
        pid = int(pid)
    except FileNotFoundError:
        return None
    except ValueError:
        raise BackgroundError(f"{pid_file}: not a pid file of this program") from None
    return pid if pid > 1 and identity == _identity(pid) else None


def _identity(pid):
    """When the process started and in which boot; None where it is gone or a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    if state == "Z":
        return None
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{fields[_START_TIME - 1]} {boot}"


def main(argv):
    """Runs the program; `argv` is its command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="background", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="action", required=True)
    starting = commands.add_parser("start", help="Start a command.")
    starting.add_argument("--pid_file", required=True, help="File for the process's number.")
    starting.add_argument("--log_file", required=True, help="File that its output is appended to.")
    starting.add_argument("command", nargs="+", help="The command, after --.")
    stopping = commands.add_parser("stop", help="Stop what was started.")
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
        print(f"background: error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
