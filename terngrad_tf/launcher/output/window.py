"""A bound on the lines of a process that nobody has read."""

import threading

_UNREAD_BYTES = 1 << 20
# For the last lines of a process that has ended, or shall end and saves.
_LAST_BYTES = 16 << 20
# What Python adds to a line's characters.
_LINE_BYTES = 400
# Readers need not report less.
REPORTED_BYTES = _UNREAD_BYTES // 4


def size_of(line: str) -> int:
    """Returns about the memory of a line that waits."""
    return _LINE_BYTES + len(line)


class Window:
    """Lets the lines of a process pass while few of them wait for their reader.

    The thread that reads the process's pipe waits, then the process itself, as at a full pipe.
    """

    def __init__(self) -> None:
        self._unread, self._limit = 0, _UNREAD_BYTES
        self._changed = threading.Condition()

    def enter(self, line: str) -> None:
        """Waits until a line may pass."""
        with self._changed:
            self._changed.wait_for(lambda: self._unread < self._limit)
            self._unread += size_of(line)

    def leave(self, size: int) -> None:
        """Notes that lines of a `size` were read."""
        with self._changed:
            self._unread = max(0, self._unread - size)
            self._changed.notify_all()

    def widen(self) -> None:
        """Lets more lines wait: the process has ended, or shall end."""
        with self._changed:
            self._limit = _LAST_BYTES
            self._changed.notify_all()
