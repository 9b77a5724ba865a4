"""Standard output of programs: readers that are gone, and letters that a terminal lacks."""

import contextlib
import io
import os
import select
import signal
import sys
from collections.abc import Iterator

# As shells report a program that a signal ended.
STATUS = 128 + signal.SIGPIPE


@contextlib.contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """Context of a program, which ends if the reader of its standard output is gone, as `head` is.

    Output has escapes for letters that its encoding lacks, such as those of file names.

    Raises:
        SystemExit: with status 141 and no traceback.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            _flush(sys.stdout)
    except BrokenPipeError:
        if sys.stdout is None or not _is_without_reader(sys.stdout):
            raise
        # Python flushes once more at the end.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
        raise SystemExit(STATUS) from None


def _flush(stream):
    try:
        if stream is not None:
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        pass  # on a full disk, programs keep their status


def _is_without_reader(stream):
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
