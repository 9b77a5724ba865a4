"""Hosts of their own for tests, in network namespaces: their links can be cut."""

import os
import pathlib
import shutil
import subprocess

NETNS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "netns.sh"


class Network:
    """Hosts on this machine, joined by links, until the test is cleaned up.

    Skips the test where there can be none.

    Args:
        test: `tf.test.TestCase`.
        prefix: 1 to 6 letters that no other network of this machine uses.
        subnet: first three numbers of the hosts' addresses, the same.
        num_hosts: number of hosts.
    """

    def __init__(self, test, prefix, subnet, num_hosts):
        self._prefix, self._subnet = prefix, subnet
        self.addresses = [f"{subnet}.{index + 1}:4711" for index in range(num_hosts)]
        if os.geteuid() or shutil.which("ip") is None:
            test.skipTest("needs root and iproute2")
        # A test that was killed leaves its hosts.
        self._netns("down", num_hosts)
        test.addCleanup(self._netns, "down", num_hosts)
        result = self._netns("up", num_hosts, "none")
        if result.returncode:
            test.skipTest(f"network namespaces are not available: {result.stderr}")

    def on_host(self, index):
        """Command line before a command that is to run on a host."""
        return ["ip", "netns", "exec", f"{self._prefix}{index}"]

    def cut(self, index):
        """From here on nothing reaches a host, nor leaves it."""
        self._set_link(index, "down")

    def join(self, index):
        """Ends `cut`."""
        self._set_link(index, "up")

    def _set_link(self, index, state):
        subprocess.run(["ip", "link", "set", f"{self._prefix}v{index}", state], check=True)

    def _netns(self, command, *arguments):
        return subprocess.run(
            ["bash", str(NETNS), command, self._prefix, *map(str, arguments)],
            env=dict(os.environ, SUBNET=self._subnet),
            check=False,
            capture_output=True,
            text=True,
        )
