"""Tests TCP connections to other processes of a cluster, and closes them."""

import contextlib
import ipaddress
import os
import socket
import stat
import time

# The process has ended, or not yet begun.
REFUSED = "connection refused"
PROBE_SECONDS = 2.0


def connection_failure(address: str) -> str | None:
    """Returns why a TCP connection to "host:port" fails within 2 s, or None."""
    try:
        connect(address).close()
    except OSError as error:
        return reason(error)
    return None


def connect(address: str) -> socket.socket:
    """Returns a TCP connection to "host:port", made within 2 s; raises OSError on failure."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS)


def reason(error: OSError) -> str:
    """Returns the reason of a failed connection in a few words."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def answer_failure(address: str) -> str | None:
    """Returns why a server of TensorFlow at "host:port" does not answer within 2 s, or None.

    A system accepts connections for suspended processes, too, but gRPC sends the first message.
    """
    try:
        with connect(address) as connection:
            return None if connection.recv(1) else "connection closed"
    except OSError as error:
        return reason(error)


class Watch:
    """Tests whether servers answer, and measures how long they have not."""

    def __init__(self) -> None:
        self._lost_since = {}

    def look(self, address: str) -> tuple[str | None, float]:
        """Returns a failure to answer and the seconds since the first one; else None and 0.0."""
        failure = answer_failure(address)
        if failure is None:
            self._lost_since.pop(address, None)
            return None, 0.0
        now = time.monotonic()
        return failure, now - self._lost_since.setdefault(address, now)


def shutdown_sockets(address: str) -> None:
    """Closes this process's TCP connections to "host:port", on systems with `/dev/fd`.

    Code that waits on them gets an error; gRPC would wait a quarter of an hour if a link is cut.
    """
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        wanted = {_endpoint(sockaddr) for *_, sockaddr in found}
        for descriptor in map(int, os.listdir("/dev/fd")):
            with contextlib.suppress(OSError):
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    continue
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    if connection.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    if _endpoint(connection.getpeername()) in wanted:
                        connection.shutdown(socket.SHUT_RDWR)


def _endpoint(sockaddr):
    """Returns a socket's address and port, with one form of IPv4 for both families."""
    address = ipaddress.ip_address(sockaddr[0].partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), sockaddr[1]
