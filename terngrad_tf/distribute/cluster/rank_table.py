"""Reads rank tables, JSON files that list the devices of MindSpore's distributed training.

Does not import TensorFlow, since scripts read a table before they start processes.
"""

import collections
import dataclasses
import ipaddress
import os
import re
import socket
from collections.abc import Sequence

from terngrad_tf.common import strict_json
from terngrad_tf.common.arguments import shown

# Required and optional keys.
_TABLE_KEYS = ({"version", "server_list", "status"}, {"server_count"})
_SERVER_KEYS = ({"server_id", "device"}, {"host_nic_ip"})
_DEVICE_KEYS = ({"device_id", "device_ip", "rank_id"}, set())


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of a table, used by one process; IPv6 addresses have brackets."""

    server_id: str
    device_id: int
    address: str


def read_rank_table(path: str | os.PathLike) -> list[Device]:
    """Returns the devices of a table, by `rank_id` from 0.

    Raises:
        ValueError: the file is not a completed rank table of version 1.0.
        OSError: the file cannot be read.
    """
    try:
        table = strict_json.read_json(path)
    except ValueError as error:
        raise ValueError(f"{path}: a rank table must be JSON: {error}") from error
    try:
        return _devices(table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def addresses(devices: Sequence[Device], port: int) -> list[str]:
    """Returns "ip:port" of the devices' processes; equal IPs use consecutive ports.

    Raises:
        ValueError: a port is not from 1 to 65535.
    """
    seen = collections.Counter()
    found = []
    for rank, device in enumerate(devices):
        own_port = port + seen[device.address]
        if not 0 < own_port < 2**16:
            raise ValueError(f"rank {rank} must have a port from 1 to 65535. Received: {own_port}")
        found.append(f"{device.address}:{own_port}")
        seen[device.address] += 1
    return found


def on_this_machine(
    devices: Sequence[Device], server_id: str = ""
) -> tuple[list[int], Sequence[Device]]:
    """Returns this machine's ranks, and all devices with the addresses to use.

    This machine is the named server, the table's only server, or the one with an address of this
    machine. The processes of a single server use 127.0.0.1, since a table may list the addresses of
    accelerators only.

    Raises:
        ValueError: the table has no such server.
    """
    servers = list(dict.fromkeys(device.server_id for device in devices))
    if server_id and server_id not in servers:
        raise ValueError(
            f"`server_id` must be one of {', '.join(servers)}. Received: {shown(server_id)}"
        )
    if len(servers) == 1:
        local = [dataclasses.replace(device, address="127.0.0.1") for device in devices]
        return list(range(len(devices))), local
    if not server_id:
        own = [d.server_id for d in devices if _is_own(d.server_id) or _is_own(d.address)]
        if not own:
            raise ValueError(
                f"`server_id` must be given: no address of {', '.join(servers)} is this machine's"
            )
        server_id = own[0]
    ranks = [rank for rank, device in enumerate(devices) if device.server_id == server_id]
    return ranks, devices


def _is_own(address):
    """Returns True if an IP address is one of this machine's."""
    try:
        found = ipaddress.ip_address(address.strip("[]"))
        with socket.socket(socket.AF_INET6 if found.version == 6 else socket.AF_INET) as probe:
            probe.bind((str(found), 0))
    except (OSError, ValueError):
        return False
    return True


def _devices(table):
    _check_keys(table, "the table", *_TABLE_KEYS)
    if table["version"] != "1.0":
        raise ValueError(f'`version` must be "1.0". Received: {shown(table["version"])}')
    if table["status"] != "completed":
        raise ValueError(f'`status` must be "completed". Received: {shown(table["status"])}')
    servers = _list(table, "server_list")
    if "server_count" in table and _integer(table, "server_count") != len(servers):
        raise ValueError(
            f"`server_count` must be the length of `server_list`, {len(servers)}."
            f" Received: {shown(table['server_count'])}"
        )
    found = {}
    for server in servers:
        _check_keys(server, "a server", *_SERVER_KEYS)
        if not isinstance(server["server_id"], str):
            raise ValueError(f"`server_id` must be text. Received: {shown(server['server_id'])}")
        for device in _list(server, "device"):
            _check_keys(device, "a device", *_DEVICE_KEYS)
            rank = _integer(device, "rank_id")
            if rank in found:
                raise ValueError(f"`rank_id` must be unique. Received twice: {rank}")
            number, address = _integer(device, "device_id"), _ip(device["device_ip"])
            found[rank] = Device(server["server_id"], number, address)
    if sorted(found) != list(range(len(found))):
        raise ValueError(
            f"`rank_id` must count from 0 without gaps. Received: {shown(sorted(found))}"
        )
    return [found[rank] for rank in range(len(found))]


def _check_keys(value, name, required, optional):
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object. Received: {shown(value)}")
    for key in sorted(required - set(value)):
        raise ValueError(f"{name} must have `{key}`. Received: {shown(list(value))}")
    for key in sorted(set(value) - required - optional):
        raise ValueError(
            f"{name} must have no key but {sorted(required | optional)}. Received: {shown(key)}"
        )


def _list(value, key):
    if not isinstance(value[key], list) or not value[key]:
        raise ValueError(f"`{key}` must be a list that is not empty. Received: {shown(value[key])}")
    return value[key]


def _integer(value, key):
    text = str(value[key])
    if isinstance(value[key], bool) or not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError(f"`{key}` must be an integer, 0 or more. Received: {shown(value[key])}")
    return int(text)


def _ip(text):
    try:
        address = ipaddress.ip_address(text if isinstance(text, str) else "")
    except ValueError:
        raise ValueError(f"`device_ip` must be an IP address. Received: {shown(text)}") from None
    return f"[{address}]" if address.version == 6 else str(address)
