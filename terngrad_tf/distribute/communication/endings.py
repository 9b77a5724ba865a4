"""Records processes that said that they end. Killed processes and lost machines do not."""

import threading
import time

# A last message may arrive this long after the loss.
_LATE_SECONDS = 1.0
_POLL_SECONDS = 0.05

_lock = threading.Lock()
_errors: dict[int, str] = {}
_is_told = threading.Event()


def note(index: int, error: str) -> None:
    """Notes that a process ended, with the reason in one line, "" if its program was over."""
    with _lock:
        _errors.setdefault(index, error)


def known() -> dict[int, str]:
    """Returns `{index: error}` of the processes that announced their end."""
    with _lock:
        return dict(_errors)


def of_lost(index: int) -> str | None:
    """Returns the last message of a lost process, or None."""
    deadline = time.monotonic() + _LATE_SECONDS
    while index not in known() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return known().get(index)


def note_told() -> None:
    """Notes that the others know why this process ends, or caused its end."""
    _is_told.set()


def is_told() -> bool:
    """Returns True if the others already know why this process ends."""
    return _is_told.is_set()
