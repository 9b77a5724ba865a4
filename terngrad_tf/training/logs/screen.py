"""A table of the training at the bottom of a terminal, below other output; plain lines elsewhere.

`rich` draws the table and writes the process's other output above it.
"""

import contextlib
import datetime
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

WIDTH = 16
_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_VALUES = 8 * WIDTH
_REFRESHES_PER_SECOND = 4

_shown = None


def is_live() -> bool:
    """Returns True if standard output is a terminal that can redraw lines.

    False with `TERM=dumb`, `NO_COLOR` or `CI` in the environment.
    """
    return (
        sys.stdout.isatty()
        and (sys.stdout.encoding or "").lower().startswith("utf")
        and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        and not os.environ.get("NO_COLOR")
        and not os.environ.get("CI")
    )


@contextlib.contextmanager
def show() -> Iterator["Screen | None"]:
    """Shows a table while the context is open; yields None if plain lines are preferred.

    Nested contexts share the table, which keeps its last state at the end.
    """
    global _shown
    if _shown is not None or not is_live():
        yield _shown
        return
    from rich import live  # only a terminal needs it

    screen = Screen()
    with live.Live(screen, refresh_per_second=_REFRESHES_PER_SECOND) as display:
        # A process of a cluster may end abruptly and leave the terminal without its cursor.
        display.console.show_cursor(True)
        _shown = screen
        try:
            yield screen
        finally:
            _shown = None


class Screen:
    """One row per run or worker: step, loss, accuracy, speed, time left, loss so far."""

    def __init__(self):
        self._rows = {}

    def begin(self, name: str, batch_size: int, first_step: int, last_step: int) -> None:
        """Adds or restarts a row whose step is being built."""
        self._rows[name] = Row(batch_size, first_step, last_step)

    def step(self, name: str, step: int, loss: float, accuracy: float) -> None:
        """Updates a row after a step."""
        self._rows[name].add(step, loss, accuracy)

    def note(self, name: str, text: str) -> None:
        """Adds a row that shows only a text, or changes its text."""
        self._rows[name] = Note(text)

    def __rich__(self) -> Any:
        from rich import box, table

        if not self._rows:
            return ""
        result = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        result.add_column("run", overflow="ellipsis", no_wrap=True, max_width=16)
        for title in ("step", "loss", "accuracy", "examples/s", "left"):
            result.add_column(title, justify="right", no_wrap=True)
        result.add_column("loss so far", no_wrap=True, min_width=WIDTH)
        # Notes come last.
        for name, row in sorted(self._rows.items(), key=lambda item: isinstance(item[1], Note)):
            result.add_row(name, *row.cells())
        return result


class Note:
    """A row of a `Screen` that shows `text` instead of figures."""

    def __init__(self, text: str):
        self._text = text

    def cells(self) -> tuple[str, ...]:
        """Returns the texts of the columns after the name."""
        return "", "", "", "", "", self._text


class Row:
    """A row of a `Screen` with figures."""

    def __init__(self, batch_size: int, first_step: int, last_step: int):
        self._batch_size = batch_size
        self._first_step = self._step = first_step
        self._last_step = last_step
        self._losses = Curve()
        self._accuracy = 0.0
        self._count = 0
        self._since = self._now = time.monotonic()

    def add(self, step: int, loss: float, accuracy: float) -> None:
        """Adds a finished step with its loss and accuracy."""
        self._now = time.monotonic()
        if not self._count:
            # Excludes the time to build the step.
            self._since, self._first_step = self._now, step
        self._count += 1
        self._step = step
        self._losses.add(loss)
        self._accuracy = accuracy

    def cells(self) -> tuple[str, ...]:
        """Returns the texts of the columns after the name."""
        steps = f"{self._step}/{self._last_step}"
        if not self._count:
            building = f"building the step, {time.monotonic() - self._since:.0f} s"
            return steps, "", "", "", "", building
        seconds = self._now - self._since
        speed = left = ""
        if seconds and self._step > self._first_step:
            speed = f"{self._batch_size * (self._count - 1) / seconds:,.0f}"
            each = seconds / (self._step - self._first_step)
            left = str(datetime.timedelta(seconds=round(each * (self._last_step - self._step))))
        figures = f"{self._losses.last:.4g}", f"{100 * self._accuracy:.1f} %", speed, left
        return steps, *figures, sparkline(self._losses.values)


class Curve:
    """A curve of values; neighbours are averaged if there are many."""

    def __init__(self):
        self.values = []
        self.last = 0.0
        self._each = 1
        self._open = []

    def add(self, value: float) -> None:
        """Adds a value."""
        self.last = value
        self._open.append(value)
        if len(self._open) < self._each:
            return
        self.values.append(sum(self._open) / self._each)
        self._open = []
        if len(self.values) == _MOST_VALUES:
            pairs = zip(self.values[::2], self.values[1::2], strict=True)
            self.values = [(a + b) / 2 for a, b in pairs]
            self._each *= 2


def sparkline(values: Sequence[float], width: int = WIDTH) -> str:
    """Draws finite values as blocks of eight heights; averages neighbours beyond `width`.

    Example:
        >>> sparkline([8.0, 4.0, 2.0, 1.0])
        '█▄▂▁'
    """
    count = min(width, len(values))
    if not count:
        return ""
    cuts = [len(values) * n // count for n in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    low, spread = min(means), max(means) - min(means)
    heights = [int((len(_BLOCKS) - 1) * (m - low) / spread + 0.5) if spread else 0 for m in means]
    return "".join(_BLOCKS[height] for height in heights)
