"""Hosts on this machine, joined by links of a chosen rate and delay, and their processes.

Needs Linux, root and iproute2; see `lib/netns.sh`.
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

from benchmarks.lib import delayed_links, encrypted_links

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Marks an encrypted link.
WIREGUARD = "wireguard"
NETNS = pathlib.Path(__file__).with_name("netns.sh")


class Unavailable(SystemExit):
    """This machine cannot create hosts; the message gives the reason."""


class Network:
    """Hosts of one benchmark or test.

    Args:
        prefix: 1 to 6 letters that no other network of this machine uses.
        subnet: first three numbers of the hosts' addresses, also unique.
    """

    def __init__(self, prefix, subnet, num_hosts):
        self.prefix, self.subnet, self.num_hosts = prefix, subnet, num_hosts
        self._inside = subnet
        # Function that delays all packets by seconds.
        self.stall = None

    @contextlib.contextmanager
    def up(self, link):
        """Creates the hosts in this context.

        Args:
            link: rate of each host's link, such as "1gbit", or "none" for no limit. With a round
                trip, as in "10mbit+20ms", links can `stall`; without one, they can be `cut` and
                `split`. With "+wireguard", the hosts at `addresses` encrypt their packets.

        Raises:
            Unavailable: this machine cannot create the hosts.
        """
        if os.geteuid() or shutil.which("ip") is None:
            raise Unavailable(
                "Hosts are network namespaces, which need root and iproute2:"
                " apt-get install iproute2"
            )
        rate, *more = link.split("+")
        # Killed processes leave their hosts.
        self._netns("down")
        self._inside = self.subnet
        with contextlib.ExitStack() as stack:
            stack.callback(self._netns, "down")
            try:
                for round_trip in (option for option in more if option != WIREGUARD):
                    interfaces = [self.interface(index) for index in range(self.num_hosts)]
                    links = delayed_links.up(interfaces, _milliseconds(round_trip) / 1e3)
                    self.stall = stack.enter_context(links)
                made = self._netns("up", rate)
                if made.returncode:
                    raise Unavailable(f"Network namespaces are not available: {made.stderr}")
                if WIREGUARD in more:
                    self._inside = f"172.31.{self.subnet.split('.')[1]}"
                    stack.enter_context(encrypted_links.up(list(self._encrypted_hosts())))
            except OSError as error:
                raise Unavailable(f"Links of {link} are not available: {error}") from error
            yield self

    def _encrypted_hosts(self):
        for index in range(self.num_hosts):
            yield encrypted_links.Host(
                before=self.on_host(index, []),
                interface=f"{self.prefix}w{index}",
                outside=f"{self.subnet}.{index + 1}",
                inside=f"{self._inside}.{index + 1}",
            )

    def addresses(self, port):
        """Returns the address of a port on each host."""
        return [f"{self._inside}.{index + 1}:{port}" for index in range(self.num_hosts)]

    def interface(self, index):
        """Returns the name of a host's network interface."""
        return f"{self.prefix}e{index}"

    def on_host(self, index, command):
        """Returns the command that runs a command on a host."""
        return ["ip", "netns", "exec", f"{self.prefix}{index}", *command]

    def cut(self, index):
        """Stops all packets to and from a host."""
        self._set_link(index, "down")

    def join(self, index):
        """Ends `cut`."""
        self._set_link(index, "up")

    @contextlib.contextmanager
    def split(self, part):
        """Stops packets between the hosts of `part`, by index, and the others."""
        other = f"{self.prefix}b2"
        subprocess.run(["ip", "link", "add", other, "type", "bridge"], check=True)
        try:
            subprocess.run(["ip", "link", "set", other, "up"], check=True)
            self._attach(part, other)
            yield
        finally:
            self._attach(part, f"{self.prefix}br")
            subprocess.run(["ip", "link", "del", other], check=True)

    @contextlib.contextmanager
    def processes(self, port, commands):
        """Starts a worker of the cluster `addresses(port)` on each host; yields `Process`es."""
        started = []
        try:
            for index, command in enumerate(commands):
                task = {"type": "worker", "index": index}
                config = {"cluster": {"worker": self.addresses(port)}, "task": task}
                variables = environment(TF_CONFIG=json.dumps(config))
                started.append(Process(self.on_host(index, command), variables))
            yield started
        finally:
            for process in started:
                process.kill()

    @contextlib.contextmanager
    def workers(self, port, groups, commands_of):
        """Starts processes of `step_server.serve` on each host, ready to step.

        Args:
            port: TCP port of the first group; each further group takes the next.
            groups: tuples of the modes that share a process.
            commands_of: function from such a tuple and its port to all hosts' commands.

        Yields:
            Function from a mode and a number of steps to the hosts' answers.
        """
        with contextlib.ExitStack() as stack:
            hosts_of = {}
            for number, modes in enumerate(groups, port):
                hosts = stack.enter_context(self.processes(number, commands_of(modes, number)))
                for host in hosts:
                    host.answer()
                hosts_of |= dict.fromkeys(modes, hosts)

            def run(mode, num_steps):
                for host in hosts_of[mode]:
                    host.ask(f"{mode} {num_steps}")
                return [host.answer() for host in hosts_of[mode]]

            yield run

    def _attach(self, hosts, bridge):
        for index in hosts:
            interface = f"{self.prefix}v{index}"
            subprocess.run(["ip", "link", "set", interface, "master", bridge], check=True)

    def _set_link(self, index, state):
        subprocess.run(["ip", "link", "set", f"{self.prefix}v{index}", state], check=True)

    def _netns(self, command, *arguments):
        return subprocess.run(
            ["bash", str(NETNS), command, self.prefix, str(self.num_hosts), *arguments],
            env=dict(os.environ, SUBNET=self.subnet),
            check=False,
            capture_output=True,
            text=True,
        )


def environment(**more):
    """Returns the variables of a program of this checkout."""
    return dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", PYTHONPATH=str(ROOT), **more)


def command(module, **flags):
    """Returns the command that runs a module with flags."""
    return [sys.executable, "-m", module, *(f"--{name}={value}" for name, value in flags.items())]


def free_ports(count):
    """Returns free ports of this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _milliseconds(text):
    """Returns the number of a text such as "20ms"."""
    if not text.endswith("ms"):
        raise ValueError(f"A round trip must be given as 20ms. Received: {text}")
    return float(text.removesuffix("ms"))


class Process:
    """A process that answers in lines of JSON."""

    def __init__(self, command, environment):
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, line):
        """Sends a line."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self):
        """Waits for the next JSON object; RuntimeError if the process ended."""
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self._errors.seek(0)
        raise RuntimeError(f"A host failed:\n{self._errors.read()[-3000:]}")

    def kill(self):
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._errors.close()
