"""How the processes of a cluster greet each other, by name, and prove that they share a token.

Who greets sends a line, who is greeted answers with one. With a token, both lines end in a number
that was never used before, and the answer in its seal of all four: name and number of both. Who
greeted then sends a seal of its own of the same, and only who has the token can make either.
"""

import contextlib
import dataclasses
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator

from terngrad_tf import tokens
from terngrad_tf.distribute.connections import PROBE_SECONDS, connect, reason

OTHER_PROGRAM = "another program answers there"
OTHER_TOKEN = "has another token"
NO_TOKEN = "has no token, which this process has"
TOKEN_WANTED = f"has a token, which this process has not ({tokens.VARIABLE})"
# Why two processes cannot be of one cluster.
REFUSALS = (OTHER_TOKEN, NO_TOKEN, TOKEN_WANTED)

_GREETING = b"terngrad_tf "
_MOST_BYTES = 4096
_SEPARATOR = " # "
_NO_NUMBER = ""


@dataclasses.dataclass(frozen=True)
class Heard:
    """Who greeted a process, by name.

    Attributes:
        met: those that share its token, or have none as it has none, and have got its answer.
        refused: the others, which know it by now; whoever they are.
    """

    met: set[str] = dataclasses.field(default_factory=set)
    refused: set[str] = dataclasses.field(default_factory=set)


def greet(address: str, name: str, token: str | None = None) -> tuple[str | None, str | None]:
    """Tells the process at "host:port", which is `answering`, a name, and asks for its own.

    Args:
        address: "host:port".
        name: str.
        token: what both must share. Default: none.

    Returns:
        Pair of the name and None, or of None and why there is none.
    """
    number = _NO_NUMBER if token is None else secrets.token_hex(16)
    try:
        connection = connect(address)
    except OSError as error:
        return None, reason(error)
    answer = None
    with connection, contextlib.suppress(OSError), connection.makefile("rwb") as stream:
        _send(stream, name, number)
        answer = _fields(stream.readline(_MOST_BYTES))
        if answer and token is not None and answer[2]:
            both = (name, number, answer[0], answer[1])
            if not tokens.is_seal(answer[2], token, "answer", *both):
                return None, OTHER_TOKEN
            _send(stream, tokens.seal(token, "greeting", *both))
            stream.readline(_MOST_BYTES)
    if answer is None:
        return None, OTHER_PROGRAM
    if token is None and answer[1]:
        return None, TOKEN_WANTED
    if token is not None and not answer[1]:
        return None, NO_TOKEN
    return answer[0], None


@contextlib.contextmanager
def answering(port: int, name: Callable[[], str], token: str | None = None) -> Iterator[Heard]:
    """Lets processes that `greet` this host's port know its name in this context.

    Args:
        port: TCP port.
        name: function without arguments that returns the name of the moment, called in threads.
        token: what they must share with it. Default: none.

    Yields:
        `Heard`, which grows.

    Raises:
        OSError: the port cannot be listened on.
    """
    heard = Heard()

    class Handler(socketserver.StreamRequestHandler):
        timeout = PROBE_SECONDS

        def handle(self):
            with contextlib.suppress(OSError):
                greeting = _fields(self.rfile.readline(_MOST_BYTES))
                if greeting:
                    of = heard.met if self._meets(greeting) else heard.refused
                    of.add(greeting[0])

        def _meets(self, greeting):
            other, other_number, _ = greeting
            own = name()
            if token is None:
                _send(self.wfile, own)
                return not other_number
            number = secrets.token_hex(16)
            both = (other, other_number, own, number)
            _send(self.wfile, own, number, tokens.seal(token, "answer", *both))
            if not other_number:
                return False
            sealed = _fields(self.rfile.readline(_MOST_BYTES))
            if not sealed or not tokens.is_seal(sealed[0], token, "greeting", *both):
                return False
            _send(self.wfile, own)
            return True

    with _Answerer(("", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield heard
        finally:
            server.shutdown()
            thread.join()


def _send(stream, *fields):
    stream.write(_GREETING + _SEPARATOR.join(fields).encode() + b"\n")
    stream.flush()


def _fields(line):
    """Name, number and seal of a line, "" for those that it lacks; None where it is none."""
    greeting, text = line[: len(_GREETING)], line[len(_GREETING) : -1]
    if greeting != _GREETING or not line.endswith(b"\n") or not text.isascii():
        return None
    fields = text.decode().split(_SEPARATOR)
    if not text.decode().isprintable() or not fields[0] or len(fields) > 3:
        return None
    return (*fields, "", "")[:3]


class _Answerer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    # Both versions of IP, as TensorFlow's server.
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self):
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()
