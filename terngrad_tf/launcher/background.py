"""Runs that continue after their terminal closes, and their end: `terngrad run --background`.

A run is named by its log. `LOG.pid` holds the process's id, its start time, and the machine's boot
id, which distinguish it from later processes with the same id. Linux only.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shlex
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator

from terngrad_tf.common import files

# By default, `terngrad run` gives its processes 90 s to save.
GRACE_SECONDS = 120.0
_STARTED = b"started"
# Process id, start time, boot id.
_PID_FILE = re.compile(rb"([0-9]{1,10}) ([0-9]+ [0-9a-f-]+)\s*")
_LONGEST_PID_FILE = 200
_START_TIME = 19  # field 22 of /proc/PID/stat; `fields` begin with the third

Result = tuple[int, str | None]


class BackgroundError(Exception):
    """An error that the user can fix."""


def start(log: str | os.PathLike, run: Callable[[Callable[[], None]], Result]) -> Result:
    """Runs a function in a new process and session, which appends its output to a log.

    Call it in a process with a single thread. Returns when the function reports its start, or ends.

    Args:
        run: function of a function to call when all has started. Returns an exit status and the
            reason for it, or None.

    Returns:
        The exit status and a line for the terminal: 0 after the start, else those of `run`.

    Raises:
        BackgroundError: the log is not writable, its run is running, or this system is not Linux.
    """
    log = pathlib.Path(log).absolute()
    if _identity(os.getpid()) is None:
        raise BackgroundError(f"{log}: runs in the background need Linux; use nohup here")
    with _locked(log.parent) as lock, _opened_log(log) as output:
        if running := running_process(pid_file(log)):
            raise BackgroundError(f"{log}: process {running} still runs; {_stop_command(log)}")
        answer, question = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _run(log, lock, output, question, run)
    os.close(question)
    with open(answer, "rb") as stream:
        try:
            line = stream.read()
        except KeyboardInterrupt:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
            raise
    if line == _STARTED:
        return 0, f"process {child} runs in the background; {_stop_command(log)} ends it"
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status, line.decode() or None


def pid_file(log: str | os.PathLike) -> pathlib.Path:
    """Returns the path of the file with the process's id of a log's run."""
    return pathlib.Path(f"{os.fspath(log)}.pid")


def stop(log: str | os.PathLike, grace_seconds: float = GRACE_SECONDS) -> int | None:
    """Ends a log's run, waits for its end, and returns the process's id; None if already ended.

    Args:
        grace_seconds: time between SIGTERM and SIGKILL.

    Raises:
        BackgroundError: the run belongs to another user, or the pid file is invalid.
    """
    path = pid_file(log)
    pid = running_process(path)
    if pid is not None:
        _signal(pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while running_process(path) == pid and time.monotonic() < deadline:
            time.sleep(0.05)
        if running_process(path) == pid:
            _signal(pid, signal.SIGKILL)
    # Meanwhile the log may have a new run.
    if running_process(path) in (None, pid):
        path.unlink(missing_ok=True)
    return pid


def running_process(path: pathlib.Path) -> int | None:
    """Returns the process's id in a pid file; None if the process has ended.

    Raises:
        BackgroundError: the file is invalid.
    """
    try:
        with files.open_regular(path) as file:
            content = _PID_FILE.fullmatch(file.read(_LONGEST_PID_FILE))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BackgroundError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BackgroundError(str(error)) from error
    if content is None:
        raise BackgroundError(f"{path}: not a pid file of this program")
    pid, identity = int(content[1]), content[2].decode()
    return pid if pid > 1 and identity == _identity(pid) else None


def _stop_command(log):
    return shlex.join(["terngrad", "stop", str(log)])


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[int]:
    """Lets one process at a time start a run in a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise BackgroundError(f"{folder}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        # The new process keeps the lock until its pid file is written.
        os.close(descriptor)


def _opened_log(path):
    """Opens the log for appending; refuses pipes, which may have no reader."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise BackgroundError(
            f"{path}: must be a file that can be written to: {error.strerror}"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BackgroundError(f"{path}: must be a file that can be written to")
    os.set_blocking(descriptor, True)
    return open(descriptor, "ab")


def _run(log, lock, output, question, run):
    """Runs the new process; never returns."""
    status, line = 1, "failed; its log says why"
    answer = open(question, "wb", buffering=0)

    def tell(text):
        if not answer.closed:
            with answer:
                answer.write(text)

    try:
        os.setsid()
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        for number in (1, 2):
            os.dup2(output.fileno(), number)
        with files.atomic_write(pid_file(log)) as part:
            part.write_text(f"{os.getpid()} {_identity(os.getpid())}\n", encoding="ascii")
        os.close(lock)
        status, line = run(lambda: tell(_STARTED))
        if not status:
            tell(_STARTED)
    except OSError as error:
        line = f"{error.filename or log}: {error.strerror}"
    except BaseException:  # the traceback belongs into the log
        traceback.print_exc()
    finally:
        try:
            tell((line or "").encode("utf-8", "backslashreplace"))
            pid_file(log).unlink(missing_ok=True)
        finally:
            os._exit(status)


def _signal(pid, number):
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise BackgroundError(f"process {pid} belongs to another user") from error


def _identity(pid):
    """Returns start time and boot id of a process; None if it is gone or a zombie.

    The time is in ticks since boot, because the clock may be changed.
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
