"""The line with which a process ends. Imports no TensorFlow: a mistyped flag ends one at once."""

import contextlib
import os
import sys
import time
from typing import TextIO

# Characters of a line, of a word in it, and of a text that are looked at: escaping takes long.
_LONGEST_LINE = 1000
_LONGEST_WORD = 300
_LONGEST_TEXT = 100_000
_REPLACED = "REPLACED BY KeyboardInterrupt"
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


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or what TensorFlow makes of it while it raises another."""
    is_replaced = isinstance(error, RuntimeError) and _REPLACED in str(error)
    return is_replaced or isinstance(error, KeyboardInterrupt)


def one_line(text: object) -> str:
    r"""What an error says, on one line that is printable and not long.

    Line ends become blanks, and characters that a terminal may take for commands appear as Python
    writes them. Of a text or a word, such as a path, that is too long the middle is left out.

    Args:
        text: str, or what `str` makes one of, such as an exception.

    Example:
        >>> one_line("no file\n\x1b[2J")
        'no file \\x1b[2J'
    """
    words = (_shortened(word, _LONGEST_WORD) for word in str(text)[:_LONGEST_TEXT].split())
    return _shortened(" ".join(words), _LONGEST_LINE)


def _shortened(text, longest):
    # Shortened first as well: escaping much takes long.
    escaped = "".join(map(_escaped, _cut(text, 2 * longest)))
    return _cut(escaped, longest)


def _escaped(character):
    return character if character.isprintable() else repr(character)[1:-1]


def _cut(text, longest):
    if len(text) <= longest:
        return text
    mark = f"[... {len(text)} characters ...]"
    begin = 2 * (longest - len(mark)) // 3
    return text[:begin] + mark + text[begin + len(mark) - longest :]


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
