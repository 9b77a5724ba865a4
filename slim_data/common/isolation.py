"""Runs libraries that arbitrary data can crash in a separate process."""

import concurrent.futures
import concurrent.futures.process
import contextlib
import multiprocessing
import resource
import signal
from collections.abc import Callable
from typing import Any, TypeVar

from slim_data.common.errors import DataError

_Result = TypeVar("_Result")

_MAX_SECONDS = 60
_MAX_BYTES = 2**31


def call_isolated(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function in a fresh process, limited to a minute of CPU time and, on Linux, 2 GiB.

    Args:
        function: picklable, like its result; imports what it needs before its memory grows.
        arguments: picklable values.

    Raises:
        DataError: the process ended early, for example because a library crashed.
        Exception: any exception of the function.
    """
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), _ignore_interrupts
    ) as executor:
        try:
            return executor.submit(_limited, function, *arguments).result()
        except concurrent.futures.process.BrokenProcessPool:
            raise DataError("reading it crashes or takes too much time or memory") from None


def _ignore_interrupts():
    # Ctrl-C reaches all processes of a terminal; the parent reports it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _limited(function, *arguments):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_SECONDS, _MAX_SECONDS))
    # Libraries reserve much more memory than they use, increasingly so with more cores.
    with contextlib.suppress(FileNotFoundError):  # macOS has neither the file nor the limit
        with open("/proc/self/statm", encoding="ascii") as file:
            reserved = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (reserved + _MAX_BYTES, reserved + _MAX_BYTES))
    return function(*arguments)
