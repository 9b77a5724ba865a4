"""Notices that this process did not run for a while, as when it was suspended."""

import contextlib
import threading
import time
from collections.abc import Iterator

_LEAST_SECONDS = 8.0
# An older pause has nothing to do with an error.
_RECENT_SECONDS = 60.0


class Pauses:
    """The last pause of this process, found by a thread that slept much longer than it wanted.

    Example:
        >>> pauses = Pauses()
        >>> with pauses.sleep_of(0.1):
        ...     time.sleep(0.1)
        >>> print(pauses.recent())
        None
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakes_at: float | None = None
        self._last: tuple[float, float] | None = None

    @contextlib.contextmanager
    def sleep_of(self, seconds: float) -> Iterator[None]:
        """Context in which one thread sleeps."""
        self._wakes_at = time.monotonic() + seconds
        try:
            yield
        finally:
            self.recent()
            self._wakes_at = None

    def recent(self) -> float | None:
        """Returns the seconds for which this process did not run lately, or None."""
        with self._lock:
            now, wakes_at = time.monotonic(), self._wakes_at
            if wakes_at is not None and now - wakes_at > _LEAST_SECONDS:
                self._last = (now, now - wakes_at)
            if self._last is None or now - self._last[0] > _RECENT_SECONDS:
                return None
            return self._last[1]


pauses = Pauses()
