"""HTTP requests that end, even if the server stalls, and that stay on HTTP.

A socket's timeout restarts with each byte, so a server could send one byte per second forever. A
guard thread therefore counts the received bytes.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from slim_data.common.errors import printable

TIMEOUT_SECONDS = 30
PATIENCE_SECONDS = 60
MIN_RATE = 2**12  # bytes per second: half a telephone line
_LONGEST_REASON = 200
_BUSY = (408, 429)


class Failed(Exception):
    """A request failed; the message is one printable line.

    Attributes:
        is_final: whether the same request would fail again.
    """

    def __init__(self, reason: object, status: int | None = None, is_final: bool = False):
        super().__init__(printable(" ".join(str(reason).split()), _LONGEST_REASON))
        self.status = status
        is_refusal = status is not None and 400 <= status < 500 and status not in _BUSY
        self.is_final = is_final or is_refusal


@contextlib.contextmanager
def open_url(
    url: str,
    headers: dict[str, str],
    authorization: str = "",
    patience: float = PATIENCE_SECONDS,
) -> Iterator[tuple[Callable[[int], bytes], http.client.HTTPResponse]]:
    """Requests an address and yields the response.

    Follows only http and https and uses the environment's proxies.

    Args:
        authorization: HTTP Authorization header, not sent to redirect targets; "": none.
        patience: seconds over which the average rate must reach `MIN_RATE`, or the connection is
            cut.

    Yields:
        A function of a maximum size that returns the next bytes (b"" at the end), and the response.

    Raises:
        Failed: no response or an error status, or, from the function, a broken connection.
    """
    guard = _Guard(patience)
    opener = urllib.request.OpenerDirector()
    # `urllib.request.urlopen` would also accept files and FTP.
    for handler in (
        urllib.request.ProxyHandler(),
        _Connections(guard),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    with guard:
        with guard.failures_named():
            request = urllib.request.Request(url, headers=headers)
            if authorization:
                request.add_unredirected_header("Authorization", authorization)
            try:
                response = opener.open(request, timeout=TIMEOUT_SECONDS)
            except urllib.error.HTTPError as error:
                error.close()
                raise Failed(f"HTTP status {error.code} {error.reason}", error.code) from None

        def read(size):
            with guard.failures_named():
                piece = response.read1(size)
            guard.count(len(piece))
            return piece

        with response:
            yield read, response


class _Guard:
    """Cuts a connection that receives too little."""

    def __init__(self, patience):
        self._patience = patience
        self._received = 0
        self._connection = None
        self._socket = None
        self._has_cut = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def connection(self, kind):
        """Returns a connection class that the guard watches."""
        watch = self._watch

        class Watched(kind):
            def connect(self):
                watch(self, None)
                super().connect()
                # `urllib` drops the socket when the response begins.
                watch(self, self.sock)

        return Watched

    def count(self, size):
        self._received += size

    @contextlib.contextmanager
    def failures_named(self):
        try:
            yield
        # `urllib` raises many kinds of errors for redirect targets.
        except (OSError, http.client.HTTPException, ValueError, OverflowError) as error:
            if not self._has_cut:
                raise Failed(getattr(error, "reason", error) or type(error).__name__) from None
        # A cut connection may also seem to have ended.
        if self._has_cut:
            raise Failed(
                f"the server sent less than {MIN_RATE} bytes per second for {self._patience} "
                "seconds"
            )

    def _watch(self, connection, its_socket):
        self._connection, self._socket = connection, its_socket

    def _run(self):
        before = self._received
        while not self._ended.wait(self._patience):
            if self._received - before < MIN_RATE * self._patience:
                self._has_cut = True
                self._cut()
            before = self._received

    def _cut(self):
        watched = self._socket or (self._connection and self._connection.sock)
        if watched:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(watched, socket.SHUT_RDWR)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def http_error_302(self, req, fp, code, msg, headers):
        fp.close()  # otherwise read to its end, of any length
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Connections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens the connections that the guard watches."""

    def __init__(self, guard):
        super().__init__()
        self._guard = guard

    def http_open(self, request):
        return self.do_open(self._guard.connection(http.client.HTTPConnection), request)

    def https_open(self, request):
        kind = self._guard.connection(http.client.HTTPSConnection)
        return self.do_open(kind, request, context=ssl.create_default_context())
