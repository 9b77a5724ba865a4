"""Requests of the launcher to the operating system: sockets, signals and devices."""

import contextlib
import ctypes
import glob
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

# Linux: the signal at a parent's end.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def has_gpu_driver() -> bool:
    """Returns True if the devices of NVIDIA's driver exist."""
    return bool(glob.glob("/dev/nvidia*")) or os.path.exists("/dev/dxg")


def num_cores() -> int:
    """Returns the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def listening_socket(port: int) -> socket.socket:
    """Returns a socket that listens on a TCP port, over both versions of IP.

    Raises:
        OSError: the port cannot be used.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        # Without the address, which Python adds.
        raise OSError(error.errno, os.strerror(error.errno or 0)) from None


@contextlib.contextmanager
def signals_to(handler: Callable[[int, Any], object] | signal.Handlers) -> Iterator[None]:
    """Context in which Ctrl-C and SIGTERM have another handler; for the main thread."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


def end_with_parent() -> None:
    """Lets this process receive SIGTERM when the thread that started it ends; for `preexec_fn`.

    Does nothing on other systems than Linux.
    """
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
