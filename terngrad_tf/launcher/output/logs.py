"""A run's lines on the terminal and in logs."""

import contextlib
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

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
                        files[process] = stack.enter_context(
                            contextlib.closing(_Log(logs, process))
                        )
                    files[process].write(text)

        if logs is not None and _PROCESS not in logs:
            pathlib.Path(logs).mkdir(parents=True, exist_ok=True)
        yield write


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


def show(stream: TextIO, text: str) -> None:
    """Writes a line, with escapes for what the stream's encoding lacks.

    A closed pipe or a full disk must not end the training.
    """
    encoding = stream.encoding or "utf-8"
    with contextlib.suppress(OSError, ValueError):
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
