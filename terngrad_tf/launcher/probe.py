"""Describes a machine and measures its links, for `terngrad check`.

`main` reads questions from standard input and writes answers to standard output, one JSON object
per line:

    {"tell": true}                     {"told": {...}}, see `describe`
    {"listen": [port]}                 {"listening": true}, or {"failed": reason}
    {"reach": [host, port, seconds]}   {"reached": [round trip in s, bits per second]}, or
                                       {"failed": reason}
"""

import importlib.metadata
import json
import os
import pathlib
import platform
import socket
import sys
import threading
import time
from typing import Any

from terngrad_tf.version import __version__

PACKAGES = ("tensorflow", "keras", "numpy")
_CONNECT_SECONDS = 3.0
_CHUNK = bytes(16384)
# Small, so that sent bytes are soon received.
_BUFFER_BYTES = 65536
_PINGS = 10
_PING, _MEASURE = b"p", b"m"


def describe() -> dict[str, Any]:
    """Returns properties that must, or should, agree on all machines.

    Returns:
        Versions of `terngrad_tf`, `python` and the `PACKAGES` (None if not installed); `processor`,
        `cores`, and `time`, seconds since the epoch.
    """
    told: dict[str, Any] = {"terngrad_tf": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            told[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            told[package] = None
    told["processor"], told["cores"] = _processor(), len(os.sched_getaffinity(0))
    return told | {"time": time.time()}


def _processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def listen(port: int) -> None:
    """Answers `reach` of other machines on a TCP port until the process ends."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    server = socket.create_server(("", port), family=family, dualstack_ipv6=both)

    def accept():
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _answer(connection):
    with connection:
        connection.settimeout(10 * _CONNECT_SECONDS)
        try:
            while (kind := connection.recv(1)) == _PING:
                connection.sendall(_PING)
            if kind != _MEASURE:
                return
            count, start = 0, time.perf_counter()
            while received := connection.recv(_BUFFER_BYTES):
                count += len(received)
            seconds = time.perf_counter() - start
            connection.sendall(json.dumps([count, seconds]).encode())
        except OSError:
            return  # the other end is gone


def reach(host: str, port: int, seconds: float) -> tuple[float, float]:
    """Returns the minimum seconds of a round trip to a listening machine, and bits per second."""
    with socket.create_connection((host, port), timeout=_CONNECT_SECONDS) as connection:
        connection.settimeout(10 * _CONNECT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        round_trips = []
        for _ in range(_PINGS):
            start = time.perf_counter()
            connection.sendall(_PING)
            if connection.recv(1) != _PING:
                raise OSError(None, "another program answers there")
            round_trips.append(time.perf_counter() - start)
        connection.sendall(_MEASURE)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            connection.sendall(_CHUNK)
        connection.shutdown(socket.SHUT_WR)
        count, taken = json.loads(connection.recv(4096))
    return min(round_trips), 8 * count / taken


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Answers one question; see the module."""
    try:
        if "listen" in question:
            listen(*question["listen"])
            return {"listening": True}
        if "reach" in question:
            return {"reached": list(reach(*question["reach"]))}
    except (OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            return {"failed": "timed out"}
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else str(error) or type(error).__name__
        return {"failed": reason}
    return {"told": describe()}


def main() -> int:
    """Answers the questions; returns the exit status."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
    return 0
