"""Records, in order, the places where all processes of a cluster take part."""

import bisect
import collections
import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence

# Consecutive equal names count as one.
_MOST_NAMES = 64


@dataclasses.dataclass(frozen=True)
class Traced:
    """Places noted by TensorFlow's functions while they ran.

    Attributes:
        count: places so far.
        names: the last names, in order.
        num_waits: completed waits.
    """

    count: int = 0
    names: Sequence[str] = ()
    num_waits: int = 0
    is_waiting: bool = False


@dataclasses.dataclass(frozen=True)
class History:
    """The last places of a process, in order.

    Attributes:
        skipped: number of places before `names`.
        names: (name, length) of each run of equal places.
    """

    skipped: int
    names: Sequence[tuple[str, int]]

    @property
    def length(self) -> int:
        """Total number of places."""
        return self.bounds()[-1]

    def at(self, position: int) -> str | None:
        """Returns a place's name; None if not kept or not reached yet."""
        run = bisect.bisect_right(self.bounds(), position) - 1
        return self.names[run][0] if 0 <= run < len(self.names) else None

    def bounds(self) -> list[int]:
        """Returns the first position of each run of equal names, and the end of the last."""
        return list(itertools.accumulate((n for _, n in self.names), initial=self.skipped))


def first_difference(histories: Sequence[History]) -> int | None:
    """Returns the first place that has different names in two processes, or None.

    No process passes such a place.

    Example:
    >>> one = History(0, [("fit", 1), ("step", 5), ("evaluate", 1)])
    >>> first_difference([one, History(0, [("fit", 1), ("step", 4)])]) is None
    True
    >>> first_difference([one, History(0, [("fit", 1), ("step", 6)])])
    6
    """
    # Names change only at these positions.
    positions = {position for h in histories for position in h.bounds()}
    for position in sorted(positions):
        if len({h.at(position) for h in histories} - {None}) > 1:
            return position
    return None


class Places:
    """Current and past places of this process.

    Example:
    >>> places = Places()
    >>> with places.at("a step of `fit`"):
    ...     places.waits_at
    'a step of `fit`'
    """

    def __init__(self) -> None:
        # For the main thread and its watcher.
        self._lock = threading.Lock()
        self._names: collections.deque[list] = collections.deque()
        self._skipped = 0
        self._entered: list[tuple[str, float]] = []
        self._left_by_error: str | None = None
        self._read_traced: Callable[[], Traced] | None = None
        self._traced = Traced()
        self._traced_since = 0.0

    def read_from(self, read: Callable[[], Traced]) -> None:
        """Adds the notes of TensorFlow's functions, returned by `read`."""
        with self._lock:
            self._read_traced, self._traced = read, Traced()

    def are_entered(self) -> bool:
        """Returns True if this process is at a place noted in Python."""
        return bool(self._entered)

    @contextlib.contextmanager
    def at(self, name: str) -> Iterator[None]:
        """Context of an operation in which all processes take part."""
        with self._lock:
            self._take_traced()
            self._left_by_error = None
            self._entered.append((name, time.monotonic()))
            self._add(name)
        try:
            yield
        except BaseException:
            self._left_by_error = name
            raise
        finally:
            with self._lock:
                self._entered.pop()

    def forget(self, name: str) -> None:
        """Removes the last place if it has this name, as for a step without data."""
        with self._lock:
            if self._names and self._names[-1][0] == name:
                self._names[-1][1] -= 1
                if not self._names[-1][1]:
                    self._names.pop()

    @property
    def waits_at(self) -> str | None:
        """The outermost current place, or the place that an error ended; None elsewhere."""
        with self._lock:
            if self._entered:
                return self._entered[0][0]
            traced = self._take_traced()
            return traced.names[-1] if traced.is_waiting else self._left_by_error

    def seconds_at(self) -> float:
        """Returns the seconds spent at the current place, or 0."""
        with self._lock:
            if self._entered:
                return time.monotonic() - self._entered[-1][1]
            is_waiting = self._take_traced().is_waiting
            return time.monotonic() - self._traced_since if is_waiting else 0.0

    def history(self) -> History:
        """Returns all places, including current ones."""
        with self._lock:
            self._take_traced()
            return History(self._skipped, [(name, count) for name, count in self._names])

    def _add(self, name):
        if self._names and self._names[-1][0] == name:
            self._names[-1][1] += 1
        else:
            self._names.append([name, 1])
            if len(self._names) > _MOST_NAMES:
                self._skipped += self._names.popleft()[1]

    def _take_traced(self):
        """Adds the places of functions since the last call."""
        if self._read_traced is None:
            return self._traced
        before, self._traced = self._traced, self._read_traced()
        if self._traced.num_waits != before.num_waits or not before.is_waiting:
            self._traced_since = time.monotonic()
        num_new = self._traced.count - before.count
        num_lost = num_new - len(self._traced.names)
        if num_lost > 0:
            # The order of kept and lost places is unknown.
            self._skipped += sum(count for _, count in self._names) + num_lost
            self._names.clear()
        for name in self._traced.names[max(0, -num_lost) :]:
            self._add(name)
        return self._traced


# This process belongs to one cluster for its lifetime.
places = Places()
