"""Starts a program again after its process was killed, or ended in a way that may pass."""

import ctypes
import functools
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

# How long a process that was asked to end may take: 60 s for a step that runs, and TensorFlow has
# much to take down.
GRACE_SECONDS = 90.0

_STOPPING = {signal.SIGINT, signal.SIGTERM}
_WATCHED = _STOPPING | {signal.SIGCHLD}
# With which programs end that saved to go on with further workers, and what that means.
STATUS_NEWCOMERS = 76
EXPECTED = {STATUS_NEWCOMERS: "saved, and starts again with further workers"}

# Of Linux: the signal that a process gets where its parent ends, however that does.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
# `si_code` of a signal that the terminal sent, to all processes in its foreground.
_FROM_TERMINAL = 128


def supervise(
    command: Sequence[str],
    max_restarts: int,
    passing: Mapping[int, str],
    report: Callable[[str], object],
    expected: Mapping[int, str] | None = None,
) -> int:
    """Runs a command, and again each time that it ends by a signal or with a status that may pass.

    Any other end is final, as are Ctrl-C and SIGTERM, which end both processes. Where this process
    is killed, the other gets SIGTERM. Linux only; to be called in the main thread.

    Args:
        command: list of str.
        max_restarts: how often to start it again, in all, for ends that were not expected.
        passing: dict from the exit statuses after which to start it again to what they mean.
        report: function of a line, called before each restart and when none is left.
        expected: as `passing`, of statuses after which to start it again however often. Default:
            none.

    Returns:
        The exit status of the last process; 128 and the signal's number where a signal ended it.
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
    """Exit status of one process, and whether the supervisor was told to end."""
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
    """Lets this process get SIGTERM when the thread that started it ends, however that does.

    For `preexec_fn` of `subprocess.Popen`. Linux only.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _prepare(mask):
    """In the new process, before its program: signals as they were, and SIGTERM without parent."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    end_with_parent()
