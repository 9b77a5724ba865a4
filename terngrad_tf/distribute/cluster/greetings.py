"""Greetings, by which the processes of a cluster exchange names and prove that they share a token.

The greeter sends a line, and the answerer replies with a line. With a token, both lines contain a
fresh number, the answer ends in a seal of both names and numbers, and the greeter sends its own
seal. Only owners of the token can make the seals.

Any program may connect or listen, so a greeting's time and size are limited.
"""

import contextlib
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from terngrad_tf.common import tokens
from terngrad_tf.distribute.communication.connections import connect, reason

OTHER_PROGRAM = "another program answers there"
OTHER_TOKEN = "has another token"
NO_TOKEN = "has no token, which this process has"
TOKEN_WANTED = f"has a token, which this process has not ({tokens.VARIABLE})"
# Two such processes cannot be in one cluster.
REFUSALS = (OTHER_TOKEN, NO_TOKEN, TOKEN_WANTED)
# Of a whole greeting.
GREETING_SECONDS = 4.0
# The proposal of an elastic cluster's chief names all members, in 33 bytes each.
MOST_BYTES = 1 << 16

_GREETING = b"terngrad_tf "
# Of all names in `Heard`: enough for a thousand processes.
_MOST_CHARACTERS = 1 << 23
# Two slow greetings and the pause between them.
_LATEST_SECONDS = 2 * GREETING_SECONDS + 5
_SEPARATOR = " # "
_NO_NUMBER = ""


class Heard:
    """Names of processes that greeted this one, share its token, and have its answer.

    Without a token, any program can be among them, so beyond 8 MB the oldest names are forgotten.
    """

    def __init__(self) -> None:
        # {name: time last heard}.
        self._names: dict[str, float] = {}
        self._characters = 0
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """Notes a name."""
        with self._lock:
            if self._names.pop(name, None) is None:
                self._characters += len(name)
            self._names[name] = time.monotonic()
            while self._characters > _MOST_CHARACTERS:
                oldest = next(iter(self._names))
                del self._names[oldest]
                self._characters -= len(oldest)

    def names(self) -> list[str]:
        """Returns the current names, the last heard at the end."""
        with self._lock:
            return list(self._names)

    def latest_names(self) -> list[str]:
        """Returns the recent names; processes that have not met this one greet again."""
        begin = time.monotonic() - _LATEST_SECONDS
        with self._lock:
            return [name for name, heard in self._names.items() if heard > begin]


def greet(address: str, name: str, token: str | None = None) -> tuple[str | None, str | None]:
    """Sends a name to "host:port"; returns the process's name and None, or None and a failure."""
    number = _NO_NUMBER if token is None else secrets.token_hex(16)
    try:
        connection = connect(address)
    except OSError as error:
        return None, reason(error)
    answer = None
    with connection, contextlib.suppress(OSError):
        lines = _Lines(connection)
        lines.send(name, number)
        answer = lines.receive()
        if answer and token is not None and answer.number:
            both = (name, number, answer.name, answer.number)
            if not tokens.is_seal(answer.seal, token, "answer", *both):
                return None, OTHER_TOKEN
            lines.send(tokens.seal(token, "greeting", *both))
            lines.receive()
    if answer is None:
        return None, OTHER_PROGRAM
    if token is None and answer.number:
        return None, TOKEN_WANTED
    if token is not None and not answer.number:
        return None, NO_TOKEN
    return answer.name, None


@contextlib.contextmanager
def answering(port: int, name: Callable[[], str], token: str | None = None) -> Iterator[Heard]:
    """Answers processes that `greet` this port, within this context; raises OSError on failure.

    `name` returns the current name, in threads. Greeters must share the token.
    """
    heard = Heard()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                self._answer(_Lines(self.request))

        def _answer(self, lines):
            greeting = lines.receive()
            if not greeting:
                return
            own = name()
            if token is None:
                lines.send(own)
                if not greeting.number:
                    heard.add(greeting.name)
                return
            number = secrets.token_hex(16)
            both = (greeting.name, greeting.number, own, number)
            lines.send(own, number, tokens.seal(token, "answer", *both))
            sealed = lines.receive() if greeting.number else None
            if sealed and tokens.is_seal(sealed.name, token, "greeting", *both):
                lines.send(own)
                heard.add(greeting.name)

    with _Answerer(("", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()


class _Line(NamedTuple):
    """A line of a greeting; `name` is a seal in the last line of a greeter with a token."""

    name: str
    number: str = _NO_NUMBER
    seal: str = ""


class _Lines:
    """The lines of one greeting, limited to `GREETING_SECONDS`."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._deadline = time.monotonic() + GREETING_SECONDS
        self._received = b""

    def send(self, *fields):
        """Sends a line; raises OSError, also after the time limit."""
        self._limit()
        self._connection.sendall(_GREETING + _SEPARATOR.join(fields).encode() + b"\n")

    def receive(self) -> _Line | None:
        """Returns the next line, None for another program's; raises OSError as `send`."""
        while b"\n" not in self._received and len(self._received) < MOST_BYTES:
            self._limit()
            received = self._connection.recv(MOST_BYTES - len(self._received))
            if not received:
                break
            self._received += received
            # The first bytes reveal another program.
            if not self._received.startswith(_GREETING[: len(self._received)]):
                break
        line, end, self._received = self._received.partition(b"\n")
        return _parsed(line + end)

    def _limit(self):
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the greeting took too long")
        self._connection.settimeout(left)


def _parsed(line):
    """Returns the `_Line` of bytes; None if another program sent them."""
    greeting, text = line[: len(_GREETING)], line[len(_GREETING) : -1]
    if greeting != _GREETING or not line.endswith(b"\n") or not text.isascii():
        return None
    fields = text.decode().split(_SEPARATOR)
    if not text.decode().isprintable() or not fields[0] or len(fields) > 3:
        return None
    return _Line(*fields)


class _Answerer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # Both versions of IP, like TensorFlow's server.
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
