"""Machines on which a user or a batch system starts the same command.

The first machine listens, and the others connect. Both sides first prove, in a line of JSON, that
they share a token, if any; messages of `terngrad_tf.launcher.agent` follow.
"""

import contextlib
import functools
import json
import queue
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from terngrad_tf.common import tokens
from terngrad_tf.common.addresses import is_address
from terngrad_tf.common.arguments import is_integer
from terngrad_tf.common.strict_json import parse_json
from terngrad_tf.launcher import agent
from terngrad_tf.launcher.hosts import Host
from terngrad_tf.launcher.nodes import (
    SILENCE_SECONDS,
    Event,
    LostError,
    Node,
    clock_remark,
    wait_seconds,
)
from terngrad_tf.launcher.output.window import size_of
from terngrad_tf.launcher.system import listening_socket, signals_to
from terngrad_tf.version import __version__

# Limit for a whole greeting: strangers may be silent or slow.
_GREETING_SECONDS = 5.0
_LONGEST_LINE = 1 << 20
_RETRY_SECONDS = 1.0
# A machine that was lost may start the command again at once.
_AGAIN_SECONDS = 15.0
# Wait for the first machine before a report.
_PATIENCE_SECONDS = 10.0


class Guest(NamedTuple):
    """Another machine: its connection, the connection's stream, and its first message."""

    connection: socket.socket
    stream: Any
    told: dict[str, Any]


class Listener:
    """Accepts other machines' connections, one per machine number.

    Args:
        num_nodes: number of machines, including this one.
        token: token that all share, or None.
    """

    def __init__(self, sock: socket.socket, num_nodes: int, token: str | None) -> None:
        self._token = token
        self._waiting: dict[int, queue.SimpleQueue[Guest]] = {
            node: queue.SimpleQueue() for node in range(1, num_nodes)
        }
        self._sock = sock
        threading.Thread(target=self._accept, daemon=True).start()

    def wait(self, node: int, timeout: float) -> Guest:
        """Returns the next machine of a number whose connection is open.

        Raises:
            LostError: the machine did not connect in time.
        """
        deadline = time.monotonic() + timeout
        try:
            while True:
                guest = self._waiting[node].get(timeout=wait_seconds(deadline))
                if not _has_ended(guest.connection):
                    return guest
                guest.connection.close()
        except queue.Empty:
            raise LostError(f"machine {node} did not connect within {timeout:.0f} s") from None

    def has(self, node: int) -> bool:
        """Returns True if an open connection of a machine is waiting."""
        with contextlib.suppress(LostError):
            self._waiting[node].put(self.wait(node, 0.0))
        return not self._waiting[node].empty()

    def _accept(self):
        while True:
            try:
                connection, address = self._sock.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._greet, args=(connection, address), daemon=True).start()

    def _greet(self, connection, address):
        number = secrets.token_hex(16)
        limit = threading.Timer(_GREETING_SECONDS, _shut, [connection])
        limit.start()
        try:
            stream = connection.makefile("rwb")
            _send(stream, {"terngrad_tf": __version__, "number": number})
            told = parse_json(stream.readline(_LONGEST_LINE))
            refusal = self._refusal(told, number)
            if refusal:
                _send(stream, {"refused": refusal})
                connection.close()
                return
            token = self._token
            seal = "" if token is None else tokens.seal(token, "welcome", number, told["number"])
            _send(stream, {"welcome": True, "seal": seal})
            told |= {"host": address[0], "skew": told["time"] - time.time()}
            _keep_alive(connection)
        except (OSError, ValueError):
            connection.close()
            return
        finally:
            limit.cancel()
        self._waiting[told["node"]].put(Guest(connection, stream, told))

    def _refusal(self, told, number):
        if not isinstance(told, dict):
            raise ValueError("no message of a machine")
        if told.get("version") != __version__:
            return f"machine 0 has terngrad_tf {__version__}"
        if not _is_greeting(told):
            return "machine 0 expects another first message"
        if told["node"] not in self._waiting:
            return f"`--node` must be below {len(self._waiting) + 1} and not 0, which is here"
        seal = told["seal"]
        if self._token is None:
            return "machine 0 has no token" if seal else ""
        if not tokens.is_seal(seal, self._token, "join", number, str(told["node"])):
            return "machine 0 has another token (--token-file)"
        return ""


class SocketNode(Node):
    """Machine `number`, from 1, on which a user started the command; it connects to this one.

    Args:
        timeout: seconds to wait for the first connection. Once the run has started, the others may
            continue without a lost machine, and the wait is short.
    """

    def __init__(self, number: int, listener: Listener, timeout: float) -> None:
        # Until its first message tells host and ports.
        super().__init__(Host(f"machine {number}"), [0])
        self._number = number
        self._listener = listener
        self._timeout = timeout

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """See `Node`; waits for the machine."""
        timeout, self._timeout = self._timeout, _AGAIN_SECONDS
        self._connection, self._stream, told = self._listener.wait(self._number, timeout)
        self._host = Host(told["name"] or told["host"].removeprefix("::ffff:"))
        self._ports = told["ports"]
        self.name, self.slots = self._host.name, len(self._ports)
        if remark := clock_remark(self.name, told["skew"]):
            events.put((self, {"remark": remark}))
        threading.Thread(target=self._read, args=(self._stream, events), daemon=True).start()

    def _read(self, stream, events):
        def put(message):
            if self._stream is stream:  # ignores messages of an abandoned connection
                events.put((self, message))

        with contextlib.suppress(OSError, ValueError):
            for line in stream:
                put(json.loads(line))
        put({"lost": f"{self.name}: the connection ended"})

    def send(self, message: Mapping[str, Any]) -> None:
        """See `Node`."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            _send(self._stream, message)

    def close(self) -> None:
        """See `Node`."""
        self._stream = None
        _shut(self._connection)
        self._connection.close()

    def reaches(self, program: Mapping[str, Any]) -> bool:
        """See `Node`."""
        return self._listener.has(self._number)


@contextlib.contextmanager
def listen(port: int, num_nodes: int, token: str | None) -> Iterator[Listener]:
    """Listens for other machines; see `Listener`."""
    try:
        sock = listening_socket(port)
    except OSError as error:
        raise LostError(f"cannot listen on port {port}: {error.strerror}") from None
    with sock:
        yield Listener(sock, num_nodes, token)


def join(
    chief: tuple[str, int],
    node: int,
    name: str,
    ports: list[int],
    token: str | None,
    timeout: float,
    write: Callable[[int, int, str, Callable[[], None]], None],
    report: Callable[[str], None],
    started: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Runs this machine's processes as the first machine requests, until that one is done.

    Args:
        chief: host and port of the first machine.
        node: number of this machine, from 1.
        name: host name or address for the others; "" for the address from which it connects.
        ports: one port per process.
        token: token that all machines share, or None.
        timeout: seconds to wait for the first machine.
        write: function of (rank, stream, line, function to call when the line is shown).
        report: function of a line about the run itself.
        started: called when the first machine has admitted this one.

    Returns:
        The first machine's last message, `{"over": [status, line]}`; empty if it is gone.

    Raises:
        LostError: the first machine does not answer, or refuses this one.
    """
    connection = _connect(chief, timeout, report)
    stream = _introduce(connection, chief, node, name, ports, token)
    started()
    last = {}
    lock = threading.Lock()

    def answer(message):
        if "line" in message:
            rank, number, text = message["line"]
            shown = {"shown": [rank, size_of(text)]}
            write(rank, number, text, functools.partial(own.handle, shown))
            return
        with lock, contextlib.suppress(OSError, ValueError):
            _send(stream, message)

    def incoming():
        for message in map(json.loads, stream):
            if "over" in message:
                last.update(message)
                return
            yield message

    def tell(number, _):
        # The current thread may be inside `answer`.
        threading.Thread(target=answer, args=({"told": number},), daemon=True).start()

    own = agent.Agent(answer)
    # The first machine decides what a signal does.
    with signals_to(tell), connection:
        agent.serve(own, incoming())
    return last


def _connect(chief, timeout, report):
    """Returns a connection to the first machine, which may start later."""
    begin, is_told = time.monotonic(), False
    while True:
        try:
            return socket.create_connection(chief, timeout=_GREETING_SECONDS)
        except OSError as error:
            line = f"{chief[0]}:{chief[1]} does not answer: {error.strerror or error}"
            if time.monotonic() > begin + timeout:
                raise LostError(line) from None
            if not is_told and time.monotonic() > begin + _PATIENCE_SECONDS:
                is_told = True
                report(f"waiting for machine 0: {line}")
            time.sleep(_RETRY_SECONDS)


def _introduce(connection, chief, node, name, ports, token):
    """Returns a connection's stream after this machine was admitted."""
    try:
        stream = connection.makefile("rwb")
        number = json.loads(stream.readline(_LONGEST_LINE))["number"]
        # Fresh, so that no answer of an earlier meeting is the right one.
        own_number = secrets.token_hex(16)
        own = {
            "version": __version__,
            "node": node,
            "name": name,
            "ports": ports,
            "number": own_number,
            "seal": "" if token is None else tokens.seal(token, "join", number, str(node)),
            "time": time.time(),
        }
        _send(stream, own)
        answer = dict(json.loads(stream.readline(_LONGEST_LINE)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LostError(f"{chief[0]}:{chief[1]} is not a terngrad run: {error}") from None
    if "refused" in answer:
        raise LostError(f"{chief[0]}:{chief[1]} refuses: {answer['refused']}")
    seal = str(answer.get("seal"))
    if token is not None and not tokens.is_seal(seal, token, "welcome", number, own_number):
        raise LostError(f"{chief[0]}:{chief[1]} has another token (--token-file)")
    connection.settimeout(None)
    _keep_alive(connection)
    return stream


def _is_greeting(told):
    """Returns True for a machine's first message."""
    texts, ports = map(told.get, ("name", "number", "seal")), told.get("ports")
    return (
        all(isinstance(text, str) for text in texts)
        and is_integer(told.get("node"))
        and isinstance(told.get("time"), int | float)
        and isinstance(ports, list)
        and bool(ports)
        and all(is_integer(port) for port in ports)
        and all(is_address(Host(told["name"] or "host").address(port)) for port in ports)
    )


def _has_ended(connection):
    """Returns True if the other end has closed a connection, or is lost."""
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", select.POLLHUP))
    return bool(poll.poll(0))


def _shut(connection):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _keep_alive(connection):
    """Lets the system detect within 20 s that the other end has silently disappeared.

    Keep-alive probes need a silent connection; after a message, the user timeout counts, which only
    Linux has.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 5),
        ("TCP_KEEPALIVE", 5),  # the same on macOS
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", round(1000 * SILENCE_SECONDS)),
    ):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _send(stream, message):
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()
