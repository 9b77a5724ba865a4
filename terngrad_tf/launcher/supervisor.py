"""Restarts a program after its process was killed, or ended for a temporary reason."""

import ctypes
import functools
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

# 60 s for a running step, and time for TensorFlow to shut down.
GRACE_SECONDS = 90.0

_STOPPING = {signal.SIGINT, signal.SIGTERM}
_WATCHED = _STOPPING | {signal.SIGCHLD}
# Programs saved in order to restart with more workers.
STATUS_NEWCOMERS = 76
EXPECTED = {STATUS_NEWCOMERS: "saved, and starts again with further workers"}

# Linux: the signal at a parent's end.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
# `si_code` of a terminal's signal to all processes in its foreground.
_FROM_TERMINAL = 128


def supervise(
    command: Sequence[str],
    max_restarts: int,
    passing: Mapping[int, str],
    report: Callable[[str], object],
    expected: Mapping[int, str] | None = None,
) -> int:
    """Runs a command, and restarts it after a signal or an exit status of a temporary failure.

    All other ends are final, and so are Ctrl-C and SIGTERM, which end both processes. If this
    process is killed, the other receives SIGTERM. Linux only; call it in the main thread.

    Args:
        passing: meanings of exit statuses that allow a restart.
        report: function of a line, called before each restart and when none is left.
        expected: like `passing`, for unlimited restarts.

    Returns:
        The last exit status, or 128 plus the signal that ended the process.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        restarts = 0
        while True:
            status, stopped = _run(command, before)
            reason = passing.get(status)
            if status < 0:
                reason = f"ended by signal {-status} ({signal.strsignal(-status)})"
            if expected and status in expected and not stopped:
                report(expected[status])
                continue
            if stopped or reason is None:
                break
            restarts += 1
            if restarts > max_restarts:
                report(f"{reason}; no restart is left of {max_restarts}")
                break
            report(f"{reason}; restart {restarts} of {max_restarts}")
        return status if status >= 0 else 128 - status
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(command, mask):
    """Returns a process's exit status, and whether the supervisor was asked to end."""
    process = subprocess.Popen(command, preexec_fn=functools.partial(_prepare, mask))
    stopped = False
    while process.poll() is None:
        if not stopped:
            received = signal.sigwaitinfo(_WATCHED)
        else:
            received = signal.sigtimedwait(_WATCHED, GRACE_SECONDS)
        if received is None:
            process.kill()
        elif received.si_signo in _STOPPING:
            stopped = True
            if received.si_code != _FROM_TERMINAL:
                process.send_signal(received.si_signo)
    return process.returncode, stopped


def end_with_parent() -> None:
    """Lets this process receive SIGTERM when the thread that started it ends; for `preexec_fn`."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _prepare(mask):
    """Restores signals in the new process, and ties it to its parent."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    end_with_parent()
