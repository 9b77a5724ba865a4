"""TCP connections to other processes of a cluster: whether they come about, and closing them."""

import contextlib
import ipaddress
import os
import socket
import time

# Nobody listens on the port of a host that answers: the process has ended, or not yet begun.
REFUSED = "connection refused"
PROBE_SECONDS = 2.0


def connection_failure(address: str) -> str | None:
    """Why no TCP connection to "host:port" comes about within 2 s; None where one does."""
    try:
        connect(address).close()
    except OSError as error:
        return reason(error)
    return None


def connect(address: str) -> socket.socket:
    """A TCP connection to "host:port", which must come about within 2 s.

    Raises:
        OSError: it does not.
    """
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS)


def reason(error: OSError) -> str:
    """What went wrong with a connection, in a few words."""
    return (error.strerror or str(error) or type(error).__name__).lower()


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
