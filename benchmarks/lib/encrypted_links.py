"""Hosts of this machine that communicate through WireGuard without a kernel module.

Needs Debian's packages wireguard-go and wireguard-tools, root and /dev/net/tun.
"""

import contextlib
import dataclasses
import shutil
import subprocess
import time

PORT = 51820
# WireGuard's share of Ethernet's 1500 bytes, over IPv6 too.
_MTU = 1420
_START_SECONDS = 10
_STOP_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Host:
    """A host.

    Attributes:
        before: command that runs a command on the host.
        interface: WireGuard interface, which `up` creates.
        outside: address by which others reach the host.
        inside: address behind WireGuard.
    """

    before: list
    interface: str
    outside: str
    inside: str

    def run(self, *command, text=None):
        """Runs a command on the host; returns its output."""
        return subprocess.run(
            [*self.before, *command], input=text, check=True, capture_output=True, text=True
        ).stdout.strip()


@contextlib.contextmanager
def up(hosts):
    """Connects each `Host` to all others' inside addresses in this context."""
    for program in ("wireguard-go", "wg"):
        if shutil.which(program) is None:
            raise OSError(
                f"{program} is not installed: apt-get install wireguard-go wireguard-tools"
            )
    with contextlib.ExitStack() as stack:
        for host in hosts:
            process = subprocess.Popen(
                [*host.before, "wireguard-go", "--foreground", host.interface],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_stop, process)
            _wait_for(process, host)
        secrets = [host.run("wg", "genkey") for host in hosts]
        keys = [
            host.run("wg", "pubkey", text=key) for host, key in zip(hosts, secrets, strict=True)
        ]
        for host, secret in zip(hosts, secrets, strict=True):
            own = ["private-key", "/dev/stdin", "listen-port", str(PORT)]
            host.run("wg", "set", host.interface, *own, text=secret)
            for other, key in zip(hosts, keys, strict=True):
                if other is not host:
                    place = ["endpoint", f"{other.outside}:{PORT}", "allowed-ips", other.inside]
                    host.run("wg", "set", host.interface, "peer", key, *place)
            host.run("ip", "address", "add", f"{host.inside}/24", "dev", host.interface)
            host.run("ip", "link", "set", host.interface, "mtu", str(_MTU), "up")
        yield


def _stop(process):
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(process, host):
    """Waits until WireGuard accepts settings."""
    end = time.monotonic() + _START_SECONDS
    while subprocess.run(
        [*host.before, "wg", "show", host.interface], capture_output=True
    ).returncode:
        if process.poll() is not None or time.monotonic() > end:
            raise OSError(f"wireguard-go does not start on {host.outside}")
        time.sleep(0.05)
