"""A run's lines on the terminal and in logs."""

import contextlib
import functools
import pathlib
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from terngrad_tf.launcher.system import signals_to

_STANDARD_ERROR = 2
_PROCESS = "{rank}"


class Output:
    """Shows and logs lines on a thread of its own; a context, whose end waits for all lines.

    A terminal that is stopped, or a reader that is slow, holds up this thread alone. Then the
    context's end waits, too; a signal ends this process there.

    Args:
        logs: folder of `<process>.log`; or a path with "{rank}" for the process; or None.
    """

    def __init__(self, logs: str | None) -> None:
        self._logs = logs
        self._files: dict[object, _Log] = {}
        self._tasks: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> "Output":
        if self._logs is not None and _PROCESS not in self._logs:
            pathlib.Path(self._logs).mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with signals_to(signal.SIG_DFL):
            self._tasks.put(None)
            self._thread.join()

    def write(self, process: object, stream: int, text: str, shown: Callable[[], None]) -> None:
        """Shows and logs a process's line, then calls `shown`; returns at once."""
        self._tasks.put(functools.partial(self._write, process, stream, text, shown))

    def report(self, text: str) -> None:
        """Shows a line of this program; returns at once."""
        self._tasks.put(functools.partial(show, sys.stderr, text))

    def _work(self):
        with contextlib.ExitStack() as stack:
            self._stack = stack
            while (task := self._tasks.get()) is not None:
                task()

    def _write(self, process, stream, text, shown):
        show(sys.stderr if stream == _STANDARD_ERROR else sys.stdout, f"[{process}] {text}")
        if self._logs is not None:
            if process not in self._files:
                log = _Log(self._logs, process)
                self._files[process] = self._stack.enter_context(contextlib.closing(log))
            self._files[process].write(text)
        shown()


class _Log:
    """A process's log. An error must not end the training; the first one is reported."""

    def __init__(self, logs: str, process: object) -> None:
        name = str(process).replace(" ", "_")
        is_file = _PROCESS in logs
        self._path = pathlib.Path(logs.replace(_PROCESS, name) if is_file else f"{logs}/{name}.log")
        self._is_whole = True
        self._file = None
        with self._errors_reported():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab")

    def write(self, text: str) -> None:
        if self._file is not None and not self._file.closed:
            with self._errors_reported():
                self._file.write(f"{text}\n".encode())
                self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with self._errors_reported():
                self._file.close()

    @contextlib.contextmanager
    def _errors_reported(self):
        try:
            yield
        except OSError as error:
            if self._is_whole:
                show(sys.stderr, f"terngrad run: {self._path} lacks lines: {error.strerror}")
            self._is_whole = False


def show(stream: TextIO | None, text: str) -> None:
    """Writes a line, with escapes for what the stream's encoding lacks.

    A closed pipe or a full disk must not end the training, nor must a stream that is closed from
    the start, which is None.
    """
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    with contextlib.suppress(OSError, ValueError):
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
