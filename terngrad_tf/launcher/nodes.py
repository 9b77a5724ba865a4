"""Machines that run processes for a coordinator: this one, and others over ssh."""

import collections
import contextlib
import json
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from terngrad_tf.launcher.agent import HEARTBEAT_SECONDS, Agent
from terngrad_tf.launcher.hosts import Host
from terngrad_tf.version import __version__

# Silence after which a machine is lost.
SILENCE_SECONDS = 4 * HEARTBEAT_SECONDS
_CONNECT_SECONDS = 15
# Never asks for a password, and detects broken connections.
_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
# Larger differences make logs and certificates hard to use.
SKEW_SECONDS = 2.0
_OLDEST_PYTHON = (3, 10)
ENDED_BY_SSH = 255
_NO_PROGRAM = 127

# A machine and its message; None is this machine, for signals.
Event = tuple["Node | None", dict[str, Any]]


class LostError(Exception):
    """A machine is unreachable, or cannot do the request."""


class Node:
    """A machine and the connection to it; its last message, if it is lost, is `{"lost": reason}`.

    Args:
        host: the machine, as others reach it, and its number of processes.
        ports: one port per process.

    Attributes:
        name: name for users.
        slots: number of processes.
        beats: whether the agent reports regularly that it is alive.
    """

    beats = True

    def __init__(self, host: Host, ports: list[int]) -> None:
        self.name = host.name
        self.slots = len(ports)
        self._host = host
        self._ports = ports

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """Connects; may raise `LostError`. The machine's messages then are events."""
        raise NotImplementedError

    def address(self, slot: int) -> str:
        """Returns a process's `host:port` for other machines."""
        return self._host.address(self._ports[slot])

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends the agent a message; if that fails, drops it, and the node is lost."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the connection and all running processes."""

    def reaches(self, program: Mapping[str, Any]) -> bool:
        """Returns True if the lost machine can be opened again, and can start the program.

        Args:
            program: "folder", "script" and "command" of a start; see `agent`.
        """
        return True


class LocalNode(Node):
    """This machine."""

    beats = False

    def __init__(self, host: Host, ports: list[int]) -> None:
        super().__init__(host, ports)
        self.name = "this machine" if host.is_loopback() else host.name

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """See `Node`."""
        self._agent = Agent(lambda message: events.put((self, message)))

    def send(self, message: Mapping[str, Any]) -> None:
        """See `Node`."""
        self._agent.handle(message)

    def close(self) -> None:
        """See `Node`."""
        self._agent.end(0.0)


class SshNode(Node):
    """Another machine, reached over ssh with a key; see `machines.Remote`."""

    def __init__(
        self,
        host: Host,
        ports: list[int],
        python: str,
        options: list[str],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(host, ports)
        self._python = python
        self._command = ssh_command(host, options, python, environment, "agent")
        self._program: Program | None = None

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """See `Node`."""
        program = self._program = Program(self.name, self._command, self._python)
        try:
            first = program.receive(_CONNECT_SECONDS + SILENCE_SECONDS)
        except TimeoutError:
            raise LostError(f"{self.name} does not answer") from None
        check_version(self.name, first)
        now = time.time()
        if remark := clock_remark(self.name, first["hello"].get("time", now) - now):
            events.put((self, {"remark": remark}))
        threading.Thread(target=self._pass_on, args=(program, events), daemon=True).start()

    def _pass_on(self, program, events):
        message = {}
        while "lost" not in message:
            try:
                message = program.receive()
            except LostError as error:
                message = {"lost": str(error)}
            if self._program is program:  # ignores messages of an abandoned connection
                events.put((self, message))

    def send(self, message: Mapping[str, Any]) -> None:
        """See `Node`."""
        if self._program is not None:
            self._program.send(message)

    def close(self) -> None:
        """See `Node`; waits for the end of the agent's processes."""
        program, self._program = self._program, None
        if program is not None:
            program.close(SILENCE_SECONDS)

    def reaches(self, program: Mapping[str, Any]) -> bool:
        """See `Node`."""
        # Its Python or script may be missing, such as on a disk that is not mounted yet, or hang.
        job = {**program, "processes": [{"port": port} for port in self._ports]}
        with contextlib.suppress(LostError, OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                self._command,
                input=json.dumps({"check": job}).encode() + b"\n",
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_CONNECT_SECONDS + SILENCE_SECONDS,
                check=False,
            )
            told = list(filter(None, map(_message_of, done.stdout.splitlines())))
            check_version(self.name, told[0] if told else {})
            return not any("refused" in message for message in told)
        return False


class Program:
    """A Python program, usually on another machine, that reads and writes messages in JSON.

    Args:
        name: name of the machine.
        command: as from `ssh_command`.
        python: the machine's Python, for errors.

    Raises:
        LostError: this machine cannot start the command.
    """

    def __init__(self, name: str, command: Sequence[str], python: str) -> None:
        pipe = subprocess.PIPE
        with starting(name):
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        self._name = name
        self._python = python
        self._errors: collections.deque[str] = collections.deque(maxlen=20)
        self._messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message; drops it if the program has ended."""
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Returns the next message.

        Raises:
            LostError: the program has ended.
            TimeoutError: there was none within some seconds; the program is killed.
        """
        try:
            message = self._messages.get(timeout=seconds)
        except queue.Empty:
            self._process.kill()
            raise TimeoutError from None
        if "lost" in message:
            raise LostError(message["lost"])
        return message

    def close(self, seconds: float = 0.0) -> None:
        """Ends the program's input, and kills the program if it still runs after some seconds."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self):
        error_reader = threading.Thread(target=self._read_errors, daemon=True)
        error_reader.start()
        is_connected = False
        for line in self._process.stdout:
            if (message := _message_of(line)) is not None:
                is_connected = True
                self._messages.put(message)
        status = self._process.wait()
        error_reader.join(1.0)
        last = self._errors[-1] if self._errors else ""
        why = explain_ssh(status, last, self._python, is_connected)
        self._messages.put({"lost": f"{self._name}: {why}"})

    def _read_errors(self):
        for line in self._process.stderr:
            if text := line.decode("utf-8", "replace").strip():
                self._errors.append(text)


def ssh_command(
    host: Host, options: Sequence[str], python: str, environment: Mapping[str, str], module: str
) -> list[str]:
    """Returns the command that runs a module's `main` on another machine."""
    oldest = ".".join(map(str, _OLDEST_PYTHON))
    code = (
        f"import sys; sys.version_info >= {_OLDEST_PYTHON} or"
        f" sys.exit('its Python is %d.%d, and must be {oldest} or newer; name another by --python'"
        " % sys.version_info[:2]);"
        f" from terngrad_tf.launcher import {module}; sys.exit({module}.main())"
    )
    variables = [f"{name}={value}" for name, value in environment.items()]
    remote = shlex.join(["env", *variables, python, "-c", code])
    return [*_SSH, *options, "--", host.ssh_target, f"exec {remote}"]


@contextlib.contextmanager
def starting(host: str) -> Iterator[None]:
    """Context in which ssh starts; `LostError` if this machine cannot start it."""
    try:
        yield
    except OSError as error:
        reason = f"this machine cannot start {error.filename}: {error.strerror}"
        raise LostError(f"{host}: {reason}") from error


def explain_ssh(status: int, last: str, python: str, is_connected: bool = False) -> str:
    """Returns why a Python program started over ssh ended, given ssh's status and last error.

    Args:
        is_connected: whether the program had answered.
    """
    if status == _NO_PROGRAM:
        return f"has no program {python}; name its Python by --python"
    if "No module named" in last:
        return f"its {python} has no terngrad_tf ({last}); install it there"
    if status == ENDED_BY_SSH and is_connected:
        return last or "the connection broke, or the machine does not answer"
    if status == ENDED_BY_SSH:
        reason = last.rstrip(".") or "the connection broke"
        return f"ssh failed: {reason}; `ssh HOST true` must work without a password or a question"
    return last or f"the connection ended with status {status}"


def _message_of(line: bytes) -> dict[str, Any] | None:
    """Returns the message in a line of a remote program; None for a greeting of its shell."""
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        return message if isinstance(message, dict) else None
    return None


def check_version(name: str, hello: Mapping[str, Any]) -> None:
    """Raises `LostError` unless an agent's first message has this version."""
    version = hello.get("hello", {}).get("version")
    if version != __version__:
        raise LostError(f"{name} has terngrad_tf {version}, this machine {__version__}")


def clock_remark(name: str, skew: float) -> str | None:
    """Returns a line about a clock `skew` seconds ahead of this one; None if they agree."""
    if abs(skew) <= SKEW_SECONDS:
        return None
    return f"the clock of {name} is {skew:+.0f} s off this machine's"


def wait_seconds(deadline: float) -> float:
    """Returns the seconds, at least 0, until a time of `time.monotonic`."""
    return max(0.0, deadline - time.monotonic())
