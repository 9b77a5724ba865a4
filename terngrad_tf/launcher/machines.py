"""The machines of a run."""

import contextlib
import dataclasses
import os
import queue
import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from terngrad_tf.launcher.hosts import Host, consecutive_ports
from terngrad_tf.launcher.nodes import (
    ENDED_BY_SSH,
    Event,
    LocalNode,
    LostError,
    Node,
    SshNode,
    explain_ssh,
    starting,
)

_NOT_COPIED = (".git", ".venv*", "__pycache__")
# Status of GNU tar: a file changed meanwhile, such as the log of a run.
_CHANGED = 1


@dataclasses.dataclass(frozen=True)
class Remote:
    """How to reach other machines, and what runs there.

    Attributes:
        python: path of Python.
        options: further options of ssh.
        environment: variables for Python.
        sync: prepares a host.
    """

    python: str
    options: list[str]
    environment: Mapping[str, str]
    sync: Callable[[Host], None] | None = None


class ElsewhereNode(Node):
    """A machine on which somebody else starts the processes."""

    beats = False

    def open(self, events: "queue.SimpleQueue[Event]") -> None:
        """See `Node`."""
        self._events = events

    def send(self, message: Mapping[str, Any]) -> None:
        """See `Node`; every process ends at once."""
        for process in message.get("start", {}).get("processes", ()):
            self._events.put((self, {"exit": [process["rank"], 0, ""]}))


def from_hosts(hosts: Sequence[Host], first_port: int, remote: Remote) -> list[Node]:
    """Returns a node for each host; its processes take consecutive ports."""
    ports = [consecutive_ports("--port", first_port, host.slots) for host in hosts]
    return [_node(host, own, remote) for host, own in zip(hosts, ports, strict=True)]


def from_addresses(addresses: Sequence[str], remote: Remote) -> list[Node]:
    """Returns a node for each process at `host:port`."""
    return [_node(*_host_and_port(address), remote) for address in addresses]


def local_part(addresses: Sequence[str], ranks: Sequence[int]) -> list[Node]:
    """Returns nodes that start only some ranks of a cluster, on this machine."""
    return [
        (LocalNode if rank in ranks else ElsewhereNode)(*_host_and_port(address))
        for rank, address in enumerate(addresses)
    ]


def on_this_machine(count: int) -> list[Node]:
    """Returns a node of `count` processes on unused ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        ports = [sock.getsockname()[1] for sock in sockets]
    return [LocalNode(Host("127.0.0.1", count), ports)]


def first_slots(hosts: Sequence[Host], count: int) -> list[Host]:
    """Returns the hosts with the first `count` slots.

    Raises:
        ValueError: there are fewer slots.
    """
    available, taken = sum(host.slots for host in hosts), []
    if available < count:
        raise ValueError(
            f"`-np` must be at most the {available} slots of -H. Received: -np={count}"
        )
    for host in hosts:
        if count > 0:
            taken.append(dataclasses.replace(host, slots=min(host.slots, count)))
        count -= host.slots
    return taken


def copy_folder(host: Host, options: Sequence[str]) -> None:
    """Copies the working folder to the same path on a host, without environments and history."""
    folder = os.getcwd()
    commands = ["mkdir", "-p", folder], ["tar", "-xzf", "-", "-C", folder]
    unpacked = " && ".join(map(shlex.join, commands))
    excluded = [f"--exclude={pattern}" for pattern in _NOT_COPIED]
    with (
        starting(str(host)),
        subprocess.Popen(
            ["tar", "-czf", "-", *excluded, "-C", folder, "."], stdout=subprocess.PIPE
        ) as packing,
    ):
        sending = subprocess.run(
            ["ssh", "-o", "BatchMode=yes", *options, "--", host.ssh_target, unpacked],
            stdin=packing.stdout,
            stderr=subprocess.PIPE,
            check=False,
        )
    if packing.returncode not in (0, _CHANGED) or sending.returncode:
        told = sending.stderr.decode("utf-8", "replace").strip().splitlines()
        why = told[-1] if told else "tar failed"
        if sending.returncode == ENDED_BY_SSH:
            why = explain_ssh(ENDED_BY_SSH, why, "")
        raise LostError(f"{host}: cannot copy {folder}: {why}")


def _node(host, ports, remote):
    if host.is_local():
        return LocalNode(host, ports)
    if remote.sync is not None:
        remote.sync(host)
    return SshNode(host, ports, remote.python, remote.options, remote.environment)


def _host_and_port(address):
    host, _, port = address.rpartition(":")
    return Host(host.strip("[]")), [int(port)]
