"""TCP connections to other processes of a cluster: whether they come about, and closing them."""

import contextlib
import ipaddress
import os
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

# Nobody listens on the port of a host that answers: the process has ended, or not yet begun.
REFUSED = "connection refused"
_PROBE_SECONDS = 2.0
# What processes that wait for each other send, with their names, as a line.
_GREETING = b"terngrad_tf "
_MOST_BYTES = 100


def connection_failure(address: str) -> str | None:
    """Why no TCP connection to "host:port" comes about within 2 s; None where one does."""
    try:
        _connect(address).close()
    except OSError as error:
        return _reason(error)
    return None


def _connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS)


def _reason(error):
    return (error.strerror or str(error) or type(error).__name__).lower()


def greet(address: str, name: str) -> tuple[str | None, str | None]:
    """Tells the process at "host:port", which is `answering`, a name, and asks for its own.

    Returns:
        Pair of the name and None, or of None and why there is none.
    """
    try:
        connection = _connect(address)
    except OSError as error:
        return None, _reason(error)
    answer = b""
    with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
        stream.write(_GREETING + name.encode() + b"\n")
        stream.flush()
        answer = stream.readline(_MOST_BYTES)
    answered = _name_in(answer)
    return (answered, None) if answered else (None, "another program answers there")


def _name_in(line):
    """The name that a greeting holds, None where it is none."""
    greeting, name = line[: len(_GREETING)], line[len(_GREETING) : -1]
    fits = greeting == _GREETING and line.endswith(b"\n") and name.isascii()
    return name.decode() if fits and name.decode().isprintable() else None


class Watch:
    """Looks whether other processes can be reached, and knows since when they cannot."""

    def __init__(self) -> None:
        self._lost_since = {}

    def look(self, address: str) -> tuple[str | None, float]:
        """Tries to connect to "host:port".

        Returns:
            Pair of why no connection comes about and for how many seconds, from the first such look
            on; None and 0.0 where one does.
        """
        failure = connection_failure(address)
        if failure is None:
            self._lost_since.pop(address, None)
            return None, 0.0
        now = time.monotonic()
        return failure, now - self._lost_since.setdefault(address, now)


def shutdown_sockets(address: str) -> None:
    """Closes this process's TCP connections to "host:port", if any.

    Who waits for an answer on one then gets an error. Where a link is cut, gRPC would wait for as
    long as TCP tries, which is a quarter of an hour. Does nothing on systems without `/proc`.
    """
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        wanted = {_endpoint(sockaddr) for *_, sockaddr in found}
        for descriptor in os.listdir("/proc/self/fd"):
            # Some are closed by now or not connected.
            with contextlib.suppress(OSError):
                if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                    continue
                with socket.socket(fileno=os.dup(int(descriptor))) as connection:
                    if connection.family not in (socket.AF_INET, socket.AF_INET6):
                        continue
                    if _endpoint(connection.getpeername()) in wanted:
                        connection.shutdown(socket.SHUT_RDWR)


def _endpoint(sockaddr):
    """Address and port of a socket, those of IPv4 alike whatever the socket's family."""
    address = ipaddress.ip_address(sockaddr[0].partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), sockaddr[1]


@contextlib.contextmanager
def answering(port: int, name: str) -> Iterator[Any]:
    """Lets processes that `greet` this host's port know its name in this context.

    Yields:
        The set of the names of those that did, which grows.

    Raises:
        OSError: the port cannot be listened on.
    """
    heard = set()

    class Handler(socketserver.StreamRequestHandler):
        timeout = _PROBE_SECONDS

        def handle(self):
            with contextlib.suppress(OSError):
                other = _name_in(self.rfile.readline(_MOST_BYTES))
                if other:
                    self.wfile.write(_GREETING + name.encode() + b"\n")
                    heard.add(other)

    with _Answerer(("", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()


class _Answerer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # Both versions of IP, as TensorFlow's server.
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
