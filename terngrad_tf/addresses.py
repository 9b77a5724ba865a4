"""Addresses of hosts as flags give them. Imports no TensorFlow: the launcher needs it at once."""

import collections
import re
from typing import Any

from terngrad_tf.arguments import shown

# A name has at most 253 characters; with its port and what IPv6 adds.
_LONGEST = 300
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")


def parse_addresses(name: str, value: Any) -> list[str]:
    """Splits "host:port,host:port" and checks each address.

    Args:
        name: the argument's name, for errors.
        value: comma-separated str; blanks around commas do not count.

    Returns:
        List of str, empty for "". IPv6 addresses stand in brackets: "[fe80::1]:2222".

    Raises:
        ValueError: an address is not host:port, or stands there twice.
    """
    hosts = [part.strip() for part in value.split(",")] if value.strip() else []
    for address in hosts:
        if not is_address(address):
            raise ValueError(f"`{name}` must hold host:port, ... Received: {shown(address)}")
    twice = [host for host, count in collections.Counter(hosts).items() if count > 1]
    if twice:
        raise ValueError(f"`{name}` must name each address once. Received twice: {twice[0]}")
    return hosts


def is_address(value: object) -> bool:
    """Whether a value is text of the form host:port; an IPv6 host stands in brackets."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        return False
    host, _, port = value.rpartition(":")
    # ASCII digits only: int() would take more.
    valid_port = re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16
    return bool(_HOST.fullmatch(host) and valid_port)
