"""The last line of a process's output. Imports no TensorFlow."""

import contextlib
import os
import re
import sys
import time
from typing import TextIO

# Exit status after Ctrl-C, by the shells' convention.
STATUS_INTERRUPTED = 130
# Maximum numbers of characters: escaping is slow.
_LONGEST_LINE = 1000
_LONGEST_WORD = 300
_LONGEST_TEXT = 100_000
_REPLACED = "REPLACED BY KeyboardInterrupt"
_PAUSE_SECONDS = 0.05
# An error of Python code, and the beginning of its traceback.
_QUOTED = re.compile(
    r"^(?:\{\{[^\n]*\}\} )?(?:Error in user-defined function passed to [^\n]* iterator: \S+: )?"
    r"(\w[\w.]*: .*?)\nTraceback \(most recent call last\):$",
    re.M | re.S,
)


def write_last_line(line: str) -> None:
    """Writes a line to standard error and drops this process's later output there.

    TensorFlow's threads write errors to the end, but users look for the reason in the last line.
    """
    flush_or_drop(sys.stdout)
    flush_or_drop(sys.stderr)
    if sys.__stderr__ is None:  # closed from the start
        return
    terminal = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)  # before the line, so that no thread can write after it
    os.close(nothing)
    time.sleep(_PAUSE_SECONDS)
    # A program may have put an object of its own in place of the stream.
    encoding = getattr(sys.stderr, "encoding", None)
    with (
        contextlib.suppress(OSError),
        open(terminal, "w", encoding=encoding, errors="backslashreplace") as stream,
    ):
        print(line, file=stream)


def is_interrupt(error: BaseException | None) -> bool:
    """Returns True for Ctrl-C, also if TensorFlow replaced the exception."""
    is_replaced = isinstance(error, RuntimeError) and _REPLACED in str(error)
    return is_replaced or isinstance(error, KeyboardInterrupt)


def one_line(text: object) -> str:
    r"""Formats an error as one printable line of limited length.

    Control characters are escaped as in Python. Long texts and words, such as paths, lose their
    middle. Of an error of TensorFlow that quotes one of Python code, such as a generator's, the
    quoted error is left.

    Example:
        >>> one_line("no file\n\x1b[2J")
        'no file \\x1b[2J'
        >>> one_line("Detected at node\nKeyError: 3\nTraceback (most recent call last):\n  ...")
        'KeyError: 3'
    """
    text = str(text)[:_LONGEST_TEXT]
    quoted = _QUOTED.search(text)
    words = (_shortened(word, _LONGEST_WORD) for word in (quoted[1] if quoted else text).split())
    return _shortened(" ".join(words), _LONGEST_LINE)


def _shortened(text, longest):
    # Shorten first: escaping is slow.
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
    """Flushes a stream, if any; if that fails, drops its content and all later output.

    On a full disk, Python would change the process's exit status.
    """
    try:
        if stream is not None and not getattr(stream, "closed", False):
            stream.flush()
    except OSError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
