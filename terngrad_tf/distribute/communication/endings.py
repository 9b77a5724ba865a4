"""What this process knows of others that ended: those that came to the end of their program say so.

A process that is killed, or whose machine is gone, says nothing.
"""

import threading
import time

# So long after a process is out of reach, its last words may still be on their way.
_LATE_SECONDS = 1.0
_POLL_SECONDS = 0.05

_lock = threading.Lock()
_errors: dict[int, str] = {}
_is_told = threading.Event()


def note(index: int, error: str) -> None:
    """Notes that a process ended; `error` is the line on why, "" where its program was over."""
    with _lock:
        _errors.setdefault(index, error)


def known() -> dict[int, str]:
    """`{index: error}` of the processes that said that they end."""
    with _lock:
        return dict(_errors)


def of_lost(index: int) -> str | None:
    """What a process that is out of reach said; None for nothing."""
    deadline = time.monotonic() + _LATE_SECONDS
    while index not in known() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return known().get(index)


def note_told() -> None:
    """Notes that the others know already why this process ends, or made it end."""
    _is_told.set()


def is_told() -> bool:
    """Whether they do."""
    return _is_told.is_set()
