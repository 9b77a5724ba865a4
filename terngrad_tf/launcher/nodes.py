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
from typing import Any, Protocol

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


class Node(Protocol):
    """A machine and the connection to it.

    Its queue receives (node, message of the agent); a lost node's last message is `{"lost":
    reason}`.

    Attributes:
        name: name for users.
        slots: number of processes.
        beats: whether the agent reports regularly that it is alive.
    """

    name: str
    slots: int
    beats: bool

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """Connects; may raise `LostError`."""
        ...

    def address(self, slot: int) -> str:
        """Returns a process's `host:port` for other machines."""
        ...

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends the agent a message; if that fails, drops it, and the node is lost."""
        ...

    def close(self) -> None:
        """Ends the connection and all running processes."""
        ...

    def reaches(self, program: Mapping[str, Any]) -> bool:
        """Returns True if the lost machine can be opened again, and can start the program.

        Args:
            program: "folder", "script" and "command" of a start; see `agent`.
        """
        ...


class LocalNode:
    """This machine, with one port per slot."""

    beats = False

    def __init__(self, host: Host, ports: list[int]) -> None:
        self.name = "this machine" if host.is_loopback() else host.name
        self.slots = host.slots
        self._host = host
        self._ports = ports

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """See `Node`."""
        self._agent = Agent(lambda message: events.put((self, message)))

    def address(self, slot: int) -> str:
        """See `Node`."""
        return self._host.address(self._ports[slot])

    def send(self, message: Mapping[str, Any]) -> None:
        """See `Node`."""
        self._agent.handle(message)

    def close(self) -> None:
        """See `Node`."""
        self._agent.end(0.0)

    def reaches(self, program: Mapping[str, Any]) -> bool:
        """See `Node`."""
        return True


class SshNode:
    """Another machine, reached over ssh with a key; see `machines.Remote`.

    Args:
        ports: one port per slot.
    """

    beats = True

    def __init__(
        self,
        host: Host,
        ports: list[int],
        python: str,
        options: list[str],
        environment: Mapping[str, str],
    ) -> None:
        self.name = host.name
        self.slots = host.slots
        self._host = host
        self._ports = ports
        self._python = python
        self._environment = environment
        self._options = options
        self._process: subprocess.Popen | None = None

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """See `Node`."""
        pipe = subprocess.PIPE
        with starting(self.name):
            process = self._process = subprocess.Popen(
                self._command(), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        answers: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(process, answers, events), daemon=True).start()
        try:
            first = answers.get(timeout=_CONNECT_SECONDS + SILENCE_SECONDS)
        except queue.Empty:
            process.kill()
            raise LostError(f"{self.name} does not answer") from None
        if "lost" in first:
            raise LostError(first["lost"])
        check_version(self.name, first)
        now = time.time()
        if remark := clock_remark(self.name, first["hello"].get("time", now) - now):
            events.put((self, {"remark": remark}))

    def _read(self, process, answers, events):
        errors = collections.deque(maxlen=20)
        error_reader = threading.Thread(target=_read_errors, args=(process, errors), daemon=True)
        error_reader.start()
        is_first = True
        for line in process.stdout:
            if (message := message_of(line)) is None:
                continue
            self._put(process, message, answers if is_first else None, events)
            is_first = False
        status = process.wait()
        error_reader.join(1.0)
        last = errors[-1] if errors else ""
        lost = {"lost": f"{self.name}: {explain_ssh(status, last, self._python, not is_first)}"}
        self._put(process, lost, answers if is_first else None, events)

    def _put(self, process, message, answers, events):
        if answers is not None:
            answers.put(message)
        elif self._process is process:  # ignores messages of an abandoned connection
            events.put((self, message))

    def address(self, slot: int) -> str:
        """See `Node`."""
        return self._host.address(self._ports[slot])

    def send(self, message: Mapping[str, Any]) -> None:
        """See `Node`."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """See `Node`; waits for the end of the agent's processes."""
        process, self._process = self._process, None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(SILENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()

    def reaches(self, program: Mapping[str, Any]) -> bool:
        """See `Node`."""
        # Its Python or script may be missing, such as on a disk that is not mounted yet, or hang.
        quiet, limit = subprocess.DEVNULL, _CONNECT_SECONDS + SILENCE_SECONDS
        job = {**program, "processes": [{"port": port} for port in self._ports]}
        with contextlib.suppress(LostError, OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                self._command(),
                input=json.dumps({"check": job}).encode() + b"\n",
                stdout=subprocess.PIPE,
                stderr=quiet,
                timeout=limit,
                check=False,
            )
            told = list(filter(None, map(message_of, done.stdout.splitlines())))
            check_version(self.name, told[0] if told else {})
            return not any("refused" in message for message in told)
        return False

    def _command(self):
        return ssh_command(self._host, self._options, self._python, self._environment, "agent")


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


def message_of(line: str | bytes) -> dict[str, Any] | None:
    """Returns the message in a line of a remote program; None for a greeting of its shell."""
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        return message if isinstance(message, dict) else None
    return None


def _read_errors(process, errors):
    for line in process.stderr:
        if text := line.decode("utf-8", "replace").strip():
            errors.append(text)


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
