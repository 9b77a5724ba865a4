"""Steps that must send no messages to other processes."""

import contextlib
from collections.abc import Iterator


class MessageGuard:
    """Lets a step refuse the messages that it would send to other processes.

    A strategy has one guard, which its collectives `check`.

    Example:
    >>> guard = MessageGuard()
    >>> with guard.refusing("steps must send nothing"):
    ...     guard.check()
    Traceback (most recent call last):
    ...
    ValueError: steps must send nothing
    """

    def __init__(self) -> None:
        self._reason: str | None = None

    @contextlib.contextmanager
    def refusing(self, reason: str | None) -> Iterator[None]:
        """Context in which `check` raises this message, unless it is None."""
        previous, self._reason = self._reason, reason
        try:
            yield
        finally:
            self._reason = previous

    def check(self) -> None:
        """Raises ValueError if the step must send nothing."""
        if self._reason is not None:
            raise ValueError(self._reason)
