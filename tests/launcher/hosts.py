"""Hosts in network namespaces, reachable by ssh."""

import dataclasses
import getpass
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import time

from tests.distribute.communication import network

ROOT = pathlib.Path(__file__).resolve().parents[2]
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
_SSH_PORT = 2200


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Hosts of a test.

    Attributes:
        network: `benchmarks.lib.cluster_hosts.Network`.
        names: address of each host.
        ssh_config: path of ssh's configuration.
        servers: `subprocess.Popen` of each host's sshd.
    """

    network: object
    names: list[str]
    ssh_config: pathlib.Path
    servers: list[subprocess.Popen]

    def start(self, *arguments, host=0, folder, **environment):
        """Starts `terngrad run` on a host; returns a `subprocess.Popen` with text pipes."""
        command = [sys.executable, "-m", "terngrad_tf", "run", *arguments]
        return subprocess.Popen(
            self.network.on_host(host, command),
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def up(test, prefix, subnet, folder, num_hosts=2, link="none", home=None, mounts=()):
    """Returns a `Cluster` that the test cleans up; skips the test if it cannot be created.

    Over ssh, the home folder is `home`, by default the user's. On all hosts but the first, the
    folders `mounts` are empty disks of 1 MB.
    """
    if SSHD is None or shutil.which("ssh") is None:
        test.skipTest("needs OpenSSH: apt-get install openssh-server openssh-client")
    hosts = network.up(test, prefix, subnet, num_hosts, link)
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host_key", "key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    (folder / "sshd_config").write_text(
        f"Port {_SSH_PORT}\nHostKey {folder}/host_key\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/key.pub\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nPermitRootLogin yes\n"
        + (f"SetEnv HOME={home}\n" if home else ""),
        "utf-8",
    )
    (folder / "ssh_config").write_text(
        f"Host *\n  Port {_SSH_PORT}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  LogLevel ERROR\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n",
        "utf-8",
    )
    servers = []
    for index in range(num_hosts):
        disks = [f"mount -t tmpfs -o size=1m none {shlex.quote(str(path))}" for path in mounts]
        serve = shlex.join(["exec", SSHD, "-D", "-e", "-f", str(folder / "sshd_config")])
        server = subprocess.Popen(
            hosts.on_host(index, ["sh", "-ec", "; ".join([*(disks if index else []), serve])]),
            stderr=(folder / f"sshd_{index}.log").open("w"),
        )
        test.addCleanup(server.wait)
        test.addCleanup(server.terminate)
        servers.append(server)
    names = [address.rpartition(":")[0] for address in hosts.addresses(_SSH_PORT)]
    deadline = time.monotonic() + 30
    for index, name in enumerate(names):
        probe = f"import socket; socket.create_connection(({name!r}, {_SSH_PORT}), 1)"
        while time.monotonic() < deadline:
            found = subprocess.run(
                hosts.on_host(index, [sys.executable, "-c", probe]),
                stderr=subprocess.DEVNULL,
                check=False,
            )
            if found.returncode == 0:
                break
            time.sleep(0.1)
    return Cluster(hosts, names, folder / "ssh_config", servers)


def free_port():
    """Returns an unused TCP port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
