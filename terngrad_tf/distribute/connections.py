"""TCP connections to other processes of a cluster: whether they come about, and closing them."""

import contextlib
import ipaddress
import os
import socket
import socketserver
import threading
import time

# Nobody listens on the port of a host that answers: the process has ended, or not yet begun.
REFUSED = "connection refused"
_PROBE_SECONDS = 2.0


def connection_failure(address):
    """Why no TCP connection to "host:port" comes about within 2 s; None where one does."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
    except OSError as error:
        return (error.strerror or str(error) or type(error).__name__).lower()
    return None


class Watch:
    """Looks whether other processes can be reached, and knows since when they cannot."""

    def __init__(self):
        self._lost_since = {}

    def look(self, address):
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


def hang_up(address):
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
def answering(port):
    """Lets connections to a port of this host come about in this context.

    Does nothing where the port is in use: by this process, which then is in a cluster already, or
    by another, which TensorFlow tells when it starts.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            server = stack.enter_context(_Answerer(("", port), socketserver.BaseRequestHandler))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        yield


class _Answerer(socketserver.TCPServer):
    allow_reuse_address = True
    # Both versions of IP, as TensorFlow's server.
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
