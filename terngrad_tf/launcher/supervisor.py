"""Restarts a program after its process was killed, or ended for a temporary reason."""

import contextlib
import functools
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence

from terngrad_tf.common import preemption
from terngrad_tf.launcher.system import end_with_parent, has_gpu_driver

# 60 s for a running step, and time for TensorFlow to shut down.
GRACE_SECONDS = 90.0

_STOPPING = {signal.SIGINT, signal.SIGTERM}
_WATCHED = _STOPPING | {signal.SIGCHLD}
# A process ended because another one failed.
STATUS_PEER = 3
# Programs saved in order to restart with more workers; such restarts are not counted.
STATUS_NEWCOMERS = 76
# Meaning of exit statuses after which a program may restart.
_TEMPORARY = {
    STATUS_PEER: "another worker ended or is out of reach",
    preemption.STATUS: "stopped by SIGTERM, and saved",
}

# Forks that this process has started, itself included in a fork.
_num_forks = 0

# `si_code` of a terminal's signal to all processes in its foreground.
_FROM_TERMINAL = 128


def can_supervise() -> bool:
    """Returns True if this system has the calls that `supervise` needs, as Linux has."""
    return hasattr(signal, "sigtimedwait") and hasattr(signal, "sigwaitinfo")


def may_fork() -> bool:
    """Returns True if this program works in a fork of this process.

    A fork lacks other threads of Python. On machines with a GPU, forks were not tried.
    """
    has_gpu = has_gpu_driver() or os.path.exists("/dev/kfd")
    return not has_gpu and threading.active_count() == 1


def supervise(
    command: Sequence[str] | None, max_restarts: int, report: Callable[[str], object]
) -> int | None:
    """Runs a program, and restarts it after a signal or an exit status of a temporary failure.

    All other ends are final, and so are Ctrl-C and SIGTERM, which end both processes. If this
    process is killed, the other receives SIGTERM. Call it in the main thread, if
    `can_supervise()`.

    Args:
        command: the program's command. None: the program is a fork of this process, which goes on
            after this call. It starts at once, with all that is imported; see `may_fork`.
        max_restarts: maximum number of restarts; those for further workers do not count.
        report: function of a line, called before each restart and when none is left.

    Returns:
        The last exit status, or 128 plus the signal that ended the process. None in a fork.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        restarts = 0
        while True:
            process = _fork() if command is None else _start(command, before)
            if process is None:
                return None
            status, stopped = _wait(process)
            if status == STATUS_NEWCOMERS and not stopped:
                report("saved, and starts again with further workers")
                continue
            reason = _TEMPORARY.get(status)
            if status < 0:
                reason = f"ended by signal {-status} ({signal.strsignal(-status)})"
            if stopped or reason is None:
                break
            if restarts == max_restarts:
                report(f"{reason}; no restart is left of {max_restarts}")
                break
            restarts += 1
            report(f"{reason}; restart {restarts} of {max_restarts}")
        return status if status >= 0 else 128 - status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(process: "subprocess.Popen[bytes] | _Fork") -> tuple[int, bool]:
    """Returns a process's exit status, and whether the supervisor was asked to end."""
    stopped = False
    while (status := process.poll()) is None:
        if not stopped:
            received = signal.sigwaitinfo(_WATCHED)
        else:
            received = signal.sigtimedwait(_WATCHED, GRACE_SECONDS)
        if received is None:
            process.send_signal(signal.SIGKILL)
        elif received.si_signo in _STOPPING:
            stopped = True
            if received.si_code != _FROM_TERMINAL:
                process.send_signal(received.si_signo)
    return status, stopped


def _start(command, mask):
    return subprocess.Popen(command, preexec_fn=functools.partial(_prepare, mask))


class _Fork:
    """A fork of this process, with the methods of `subprocess.Popen` that `_wait` calls."""

    def __init__(self, pid: int):
        self._pid = pid

    def poll(self) -> int | None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def send_signal(self, number: int) -> None:
        os.kill(self._pid, number)


def _fork():
    """Forks this process. Returns the fork, and None in it."""
    global _num_forks
    _num_forks += 1
    for stream in filter(None, (sys.stdout, sys.stderr)):
        # Both processes would write what is left; on a full disk, neither can.
        with contextlib.suppress(OSError):
            stream.flush()
    parent, state = os.getpid(), random.getstate()
    # Collections in the fork, one at its end, would copy all that is loaded.
    gc.freeze()
    with warnings.catch_warnings():
        # Threads of linear algebra, which are started again.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return _Fork(pid)
    end_with_parent()
    if os.getppid() != parent:  # before the line above
        os.kill(os.getpid(), signal.SIGTERM)
    # Forks draw other numbers, even if the program had set a seed.
    random.setstate(state)
    return None


def is_restart() -> bool:
    """Returns True in a fork that is not the first one of its supervisor."""
    return _num_forks > 1


def _prepare(mask):
    """Restores signals in the new process, and ties it to its parent."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    end_with_parent()
