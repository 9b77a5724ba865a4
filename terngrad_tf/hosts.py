"""Addresses of hosts as flags give them. Imports no TensorFlow: the launcher needs it at once."""

import collections
import re

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")


def parse_hosts(name, value):
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
        host, _, port = address.rpartition(":")
        # ASCII digits only: int() would take more.
        valid_port = re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16
        if not _HOST.fullmatch(host) or not valid_port:
            raise ValueError(f"`{name}` must hold host:port, ... Received: {address!r}")
    twice = [host for host, count in collections.Counter(hosts).items() if count > 1]
    if twice:
        raise ValueError(f"`{name}` must name each address once. Received twice: {twice[0]}")
    return hosts
