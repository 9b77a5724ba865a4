"""The line with which a process ends. Imports no TensorFlow: a mistyped flag ends one at once."""

import contextlib
import os
import sys
import time
from typing import TextIO

# For what threads are writing at this moment.
_PAUSE_SECONDS = 0.05


def write_last_line(line: str) -> None:
    """Writes a line to standard error and drops all that this process writes there afterwards.

    TensorFlow's threads report errors of their own, such as lost peers, until the process is gone;
    whoever reads the end of a log looks for the reason there.

    Args:
        line: str without a line break at its end; the process should end now.
    """
    flush_or_drop(sys.stdout)
    flush_or_drop(sys.stderr)
    terminal = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)  # first: no thread may write between the line and this
    os.close(nothing)
    time.sleep(_PAUSE_SECONDS)
    with (
        contextlib.suppress(OSError),
        open(terminal, "w", encoding=sys.stderr.encoding, errors="backslashreplace") as stream,
    ):
        print(line, file=stream)


def flush_or_drop(stream: TextIO | None) -> None:
    """Writes what a stream still holds; drops it, and all that follows, where that cannot be.

    On a full disk, Python would otherwise end the process with another status than it was given.

    Args:
        stream: `sys.stdout` or `sys.stderr`, which is None where it was closed from the beginning.
    """
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
