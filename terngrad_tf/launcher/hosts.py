"""Machines of a cluster, as in `terngrad run -H`."""

import dataclasses
import ipaddress
import re
import socket
from collections.abc import Sequence

from terngrad_tf.common.arguments import shown

_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?"
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<slots>[0-9]{1,4}))?"
)
_NUM_PORTS = 2**16


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine and its number of processes.

    Attributes:
        name: host name or IP address, without brackets for IPv6.
        user: user name for ssh; "" for ssh's choice.
    """

    name: str
    slots: int = 1
    user: str = ""

    def __str__(self) -> str:
        return self.name

    def address(self, port: int) -> str:
        """Returns `host:port`, with brackets for IPv6."""
        return f"[{self.name}]:{port}" if ":" in self.name else f"{self.name}:{port}"

    @property
    def ssh_target(self) -> str:
        """Destination argument of ssh."""
        return f"{self.user}@{self.name}" if self.user else self.name

    def is_local(self) -> bool:
        """Returns True if a socket can listen on the address."""
        try:
            found = socket.getaddrinfo(self.name, 0, type=socket.SOCK_STREAM)
        except OSError:
            return False
        return any(_can_bind(family, address) for family, _, _, _, address in found)

    def is_loopback(self) -> bool:
        """Returns True if the name means each machine itself."""
        if self.name == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.name).is_loopback
        except ValueError:
            return False


def _can_bind(family, address):
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def parse_hosts(text: str) -> list[Host]:
    """Parses "[user@]host[:slots],...", with brackets for IPv6: "host1,me@host2:2,[fe80::1]:4".

    Raises:
        ValueError: an entry has another form, or a machine is repeated.

    Example:
        >>> parse_hosts("host1,host2:2")
        [Host(name='host1', slots=1, user=''), Host(name='host2', slots=2, user='')]
    """
    hosts = []
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None or match["slots"] and int(match["slots"]) < 1:
            raise ValueError(f"`-H` must hold host[:slots],... Received: {shown(part)}")
        hosts.append(Host(match["name"].strip("[]"), int(match["slots"] or 1), match["user"] or ""))
    _check(hosts)
    return hosts


def consecutive_ports(option: str, port: int, count: int, skipped: int = 0) -> list[int]:
    """Returns the ports of `count` processes, which follow `port` after `skipped` others.

    Raises:
        ValueError: the last one would be above 65535.

    Example:
        >>> consecutive_ports("--port", 2222, 2)
        [2222, 2223]
    """
    first = port + skipped
    if first + count > _NUM_PORTS:
        raise ValueError(
            f"`{option}` must name a port of at most {_NUM_PORTS - skipped - count}, since the"
            f" processes take the next ones. Received: {port}"
        )
    return list(range(first, first + count))


def _check(hosts: Sequence[Host]) -> None:
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"`-H` must name each host once. Received twice: {name}; {name}:2 asks for two"
                " processes there"
            )
    if len(hosts) > 1:
        for host in hosts:
            if host.is_loopback():
                raise ValueError(
                    "`-H` must name each host as the other hosts reach it."
                    f" Received: {host.name}, which is another machine on each"
                )
