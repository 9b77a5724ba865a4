"""A run's lines on the terminal and in logs."""

import contextlib
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO

_STANDARD_ERROR = 2
_PROCESS = "{rank}"


@contextlib.contextmanager
def writer(logs: str | None) -> Iterator[Callable[[object, int, str], None]]:
    """Yields a function of (process, stream, line), which shows and logs lines.

    Args:
        logs: folder of `<process>.log`; or a path with "{rank}" for the process; or None.
    """
    lock, files = threading.Lock(), {}
    with contextlib.ExitStack() as stack:

        def write(process, stream, text):
            with lock:
                show(sys.stderr if stream == _STANDARD_ERROR else sys.stdout, f"[{process}] {text}")
                if logs is not None:
                    if process not in files:
                        files[process] = stack.enter_context(_log(logs, process))
                    show(files[process], text)

        if logs is not None and _PROCESS not in logs:
            pathlib.Path(logs).mkdir(parents=True, exist_ok=True)
        yield write


def _log(logs, process):
    """Opens a process's log; an error must not end the training."""
    name = str(process).replace(" ", "_")
    path = pathlib.Path(logs.replace(_PROCESS, name) if _PROCESS in logs else f"{logs}/{name}.log")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        show(sys.stderr, f"terngrad run: no log {path}: {error.strerror}")
        return open(os.devnull, "w", encoding="utf-8")


def show(stream: IO[str], text: str) -> None:
    """Writes a line; a closed pipe or a full disk must not end the training."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(text + "\n")
        stream.flush()
