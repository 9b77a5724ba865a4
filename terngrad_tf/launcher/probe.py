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

from terngrad_tf.launcher.system import listening_socket, num_cores
from terngrad_tf.version import __version__

PACKAGES = ("tensorflow", "keras", "numpy")
_CONNECT_SECONDS = 3.0
_PING_SECONDS = 1.0
_PINGS = 10
# Bytes of the first message; each is as many times longer than the one before.
_FIRST_BYTES, _GROWTH = 1024, 4
_MOST_BYTES = 1 << 30
_CHUNK = bytes(65536)
_PING, _MEASURE = b"p", b"m"
_SIZE_BYTES = 4


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
    told["processor"], told["cores"] = _processor(), num_cores()
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
    server = listening_socket(port)

    def accept():
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _answer(connection):
    with connection:
        connection.settimeout(5 * _CONNECT_SECONDS)
        try:
            while (kind := connection.recv(1)) == _PING:
                connection.sendall(_PING)
            if kind != _MEASURE:
                return
            while size := int.from_bytes(connection.recv(_SIZE_BYTES, socket.MSG_WAITALL), "big"):
                while size > 0:
                    received = len(connection.recv(min(size, len(_CHUNK))))
                    size -= received or size
                connection.sendall(_MEASURE)
        except OSError:
            return  # the other end is gone


def reach(host: str, port: int, seconds: float) -> tuple[float, float]:
    """Returns the minimum seconds of a round trip to a listening machine, and bits per second.

    Messages grow until one takes longer than `seconds` and several round trips.
    """
    with socket.create_connection((host, port), timeout=_CONNECT_SECONDS) as connection:
        connection.settimeout(5 * _CONNECT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin, round_trips = time.perf_counter(), []
        while len(round_trips) < _PINGS and time.perf_counter() < begin + _PING_SECONDS:
            round_trips.append(_answered(connection, _PING, 0))
        round_trip = min(round_trips)
        connection.sendall(_MEASURE)
        size = _FIRST_BYTES
        while True:
            header = size.to_bytes(_SIZE_BYTES, "big")
            try:
                taken = max(_answered(connection, header, size) - round_trip, 1e-6)
            except TimeoutError:
                raise OSError(
                    f"a connection exists, but {size:,} bytes do not arrive; is the MTU too large?"
                ) from None
            if taken > max(seconds, 4 * round_trip) or size * _GROWTH > _MOST_BYTES:
                return round_trip, 8 * size / taken
            size *= _GROWTH


def _answered(connection, header, size):
    """Seconds until the answer to a header and `size` bytes."""
    start = time.perf_counter()
    connection.sendall(header)
    for left in range(size, 0, -len(_CHUNK)):
        connection.sendall(_CHUNK[:left])
    if connection.recv(1) not in (_PING, _MEASURE):
        raise OSError("another program answers there")
    return time.perf_counter() - start


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
