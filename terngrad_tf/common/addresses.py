"""Addresses of hosts. Imports no TensorFlow, which slows the launcher down."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from terngrad_tf.common.arguments import shown

# 253 characters of a name, IPv6 brackets, and the port.
_LONGEST = 300
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_LOCAL_NAME = "localhost"


def parse_addresses(name: str, value: Any) -> list[str]:
    """Splits "host:port,host:port", with brackets for IPv6, and checks each address.

    Raises:
        ValueError: an address is not host:port, repeated, or unreachable for other machines.
    """
    hosts = [part.strip() for part in value.split(",")] if value.strip() else []
    for address in hosts:
        if not is_address(address):
            raise ValueError(
                f"`{name}` must hold host:port, ...{advice(address)} Received: {shown(address)}"
            )
    if twice := first_twice(hosts):
        raise ValueError(f"`{name}` must name each address once. Received twice: {twice}")
    if wrong := not_for_others(hosts):
        raise ValueError(f"`{name}` must hold addresses for all machines: {wrong}")
    return hosts


def is_address(value: object) -> bool:
    """Returns True for "host:port", with brackets around an IPv6 host."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        return False
    host, _, port = value.rpartition(":")
    # ASCII digits only: int() accepts more.
    valid_port = re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16
    if host.startswith("[") and getattr(_ip(host), "version", None) != 6:
        return False
    return bool(_HOST.fullmatch(host) and valid_port)


def advice(value: object) -> str:
    """Returns advice on an invalid address, for an error; "" if unknown.

    Example:
        >>> advice("fe80::1:2222")
        ' An IPv6 address stands in brackets, such as [fe80::1]:2222.'
    """
    if isinstance(value, str) and len(value) <= _LONGEST and value.count(":") > 1:
        host, _, port = value.rpartition(":")
        if _ip(host) and port.isdecimal():
            return f" An IPv6 address stands in brackets, such as [{host}]:{port}."
        if _ip(value):
            return f" An IPv6 address stands in brackets, with a port, such as [{value}]:2222."
    return ""


def first_twice(addresses: Iterable[str]) -> str | None:
    """Returns the first repeated address, ignoring case, or None."""
    seen = set()
    for address in addresses:
        if address.lower() in seen:
            return address
        seen.add(address.lower())
    return None


def not_for_others(addresses: Iterable[str]) -> str | None:
    """Returns the fault of addresses that mean each machine itself, or None.

    All addresses may be local, for a cluster on one machine.

    Example:
        >>> not_for_others(["localhost:2222", "b:2222"])
        "'localhost:2222' is each machine's own address, and 'b:2222' is another's"
    """
    addresses = list(addresses)
    local = [address for address in addresses if _is_local(address)]
    for address in addresses:
        ip = _ip(address.rpartition(":")[0])
        if ip is not None and (ip.is_unspecified or ip.is_multicast):
            return f"{shown(address)} is no machine's address"
    others = [address for address in addresses if address not in local]
    if not local or not others:
        return None
    return f"{shown(local[0])} is each machine's own address, and {shown(others[0])} is another's"


def _is_local(address):
    host = address.rpartition(":")[0]
    ip = _ip(host)
    return ip.is_loopback if ip is not None else host.lower() == _LOCAL_NAME


def _ip(host):
    """Returns the IP address of a host, with or without brackets; None for a name."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
