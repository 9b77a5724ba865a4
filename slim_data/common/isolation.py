"""Calling libraries that data from anywhere can crash, in a process of its own."""

import concurrent.futures
import concurrent.futures.process
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
    """Calls a function in a fresh process, which may take a minute of CPU time and 2 GiB.

    Args:
        function: function of a module; imports what it needs before anything grows.
        arguments: picklable values.

    Returns:
        What it returns, picklable too.

    Raises:
        DataError: the process ended early, as where a library crashed.
        Exception: as the function raised it.
    """
    with concurrent.futures.ProcessPoolExecutor(
        1, multiprocessing.get_context("spawn"), _ignore_interrupts
    ) as executor:
        try:
            return executor.submit(_limited, function, *arguments).result()
        except concurrent.futures.process.BrokenProcessPool:
            raise DataError("reading it crashes or takes too much time or memory") from None


def _ignore_interrupts():
    # Of a terminal's Ctrl-C, which reaches all of its processes, the other one tells.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _limited(function, *arguments):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_SECONDS, _MAX_SECONDS))
    # Libraries reserve much more than they use, the more the more cores there are.
    with open("/proc/self/statm", encoding="ascii") as file:
        reserved = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (reserved + _MAX_BYTES, reserved + _MAX_BYTES))
    return function(*arguments)
