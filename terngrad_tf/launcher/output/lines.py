"""Reads the lines of a process, with progress bars."""

import time
from collections.abc import Iterator
from io import BufferedIOBase

PROGRESS_SECONDS = 10.0
# Longer lines are cut.
_LONGEST_LINE = 65536


def read_lines(stream: BufferedIOBase, progress_seconds: float = PROGRESS_SECONDS) -> Iterator[str]:
    """Yields lines without their ends, as a terminal shows them in the end.

    Progress bars rewrite a line by carriage returns, hundreds of times per epoch. Only the last
    state is a line, and a state every `progress_seconds`.

    Example:
        >>> import io
        >>> list(read_lines(io.BytesIO(b"Epoch 1\\n 1/9 slow\\r 9/9 done\\n")))
        ['Epoch 1', ' 9/9 done']
    """
    pending, shown = b"", time.monotonic()
    while chunk := stream.read1(_LONGEST_LINE):
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            for part in _cut(_last_state(line)):
                yield _text(part)
            shown = time.monotonic()
        if b"\r" in pending:
            # The last state may be incomplete.
            before, _, last = pending.rpartition(b"\r")
            state = _last_state(before)
            if state and time.monotonic() >= shown + progress_seconds:
                yield _text(state)
                shown = time.monotonic()
            # A carriage return may precede the line end.
            pending = state + b"\r" + last
        while len(pending) > _LONGEST_LINE:
            yield _text(pending[:_LONGEST_LINE])
            pending = pending[_LONGEST_LINE:]
    if pending:
        yield _text(_last_state(pending))


def _last_state(line):
    """Returns the last visible part of a line that carriage returns divide."""
    states = [part.strip(b"\b") for part in line.split(b"\r")]
    return next((state for state in reversed(states) if state.strip()), b"")


def _cut(line):
    return [line[i : i + _LONGEST_LINE] for i in range(0, len(line) or 1, _LONGEST_LINE)]


def _text(line):
    return line.decode("utf-8", "replace")
