"""A newcomer's first hour: a wheel, two machines, and the commands of docs/two_machines.md."""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import pytest
import tensorflow as tf

from tests import wheels
from tests.distribute.communication import network
from tests.docs import guides

PAGE = guides.ROOT / "docs/two_machines.md"
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
HOME = pathlib.Path.home()
# Gives a program a private home folder: an overlay over HOME.
PRIVATE_HOME = (
    "mount -t overlay -o lowerdir={lower},upperdir={upper},workdir={work} overlay {home}; cd {home}"
)
# A newcomer's login environment, without the tests' folders.
LOGIN = {
    "HOME": str(HOME),
    "PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
}


def overlay(folder, *lower):
    """Returns a shell command that mounts an empty overlay over the home folder."""
    for name in ("upper", "work"):
        (folder / name).mkdir(parents=True)
    below = ":".join(map(str, [*lower, HOME]))
    return PRIVATE_HOME.format(lower=below, upper=folder / "upper", work=folder / "work", home=HOME)


class Machine:
    """A host with its own processes, network and home folder, reachable by ssh.

    Args:
        before: command prefix that runs a command on the host.
        setup: shell command that makes the home folder.
        sshd_config: path of sshd's configuration.
    """

    def __init__(self, before, setup, sshd_config):
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        serve = f"set -e; {setup}; exec {SSHD} -D -e -f {sshd_config}"
        self.server = subprocess.Popen([*before, *isolated, "bash", "-c", serve], env=LOGIN)

    def end(self):
        """Ends the host and all its processes."""
        self.server.kill()  # unshare ignores SIGTERM
        self.server.wait()

    def start(self, text, **options):
        """Starts commands in the home folder; returns a `subprocess.Popen` with text pipes."""
        first = pathlib.Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not first.read_text().split():
            time.sleep(0.05)
        (process,) = first.read_text().split()
        enter = ["nsenter", "--target", process, "--net", "--mount", "--pid"]
        return subprocess.Popen(
            [*enter, "bash", "-euc", f"cd\n{text}"],
            env=LOGIN,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **options,
        )

    def run(self, text, given=None):
        """Runs commands in the home folder with a text as input; returns the output."""
        process = self.start(text)
        output, _ = process.communicate(given, timeout=120)
        if process.returncode:
            raise AssertionError(f"{text}: {output}")
        return output


@pytest.mark.long
class FirstHourTest(tf.test.TestCase):
    def setUp(self):
        needed = ("ssh", "ssh-keygen", "ip", "tc", "fuser", "unshare", "nsenter")
        missing = [name for name in needed if shutil.which(name) is None] + ["sshd"] * (not SSHD)
        if os.geteuid() or missing:
            self.skipTest(
                f"needs root, and {missing}: apt-get install openssh-server iproute2 psmisc"
            )
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def install(self, commands):
        """Installs the wheel by the page's commands; returns the files added to the home folder."""
        image = self.folder / "image"
        setup = overlay(image)
        wheel = wheels.build(self.folder)
        script = f"set -e; {setup}; cp {wheel} .\n{commands}"
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-c", script],
            env=LOGIN | pip,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if "mount: " in done.stdout:
            self.skipTest(f"needs overlays: {done.stdout}")
        if done.returncode and re.search("No matching distribution|Connection", done.stdout):
            self.skipTest(f"needs PyPI: {done.stdout[-500:]}")
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        return image / "upper"

    def machines(self, image):
        """Returns two machines with the installation; the first can log in to the second."""
        net = network.up(self, "tfhr", "10.98.0", 2, "100mbit")
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        addresses = [a.rpartition(":")[0] for a in net.addresses(22)]
        names = self.folder / "hosts"
        names.write_text(
            "127.0.0.1 localhost\n"
            + "".join(f"{address} host{i + 1}\n" for i, address in enumerate(addresses))
        )
        for key in ("host_key", "key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key]
            subprocess.run(command, check=True)
        config = self.folder / "sshd_config"
        config.write_text(
            f"HostKey {self.folder}/host_key\nPidFile none\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication no\nAuthorizedKeysFile {self.folder}/key.pub\n"
        )
        for i in range(2):
            setup = overlay(self.folder / f"machine_{i}", image)
            setup += f"; mount --bind {names} /etc/hosts"
            machine = Machine(net.on_host(i, []), setup, config)
            self.addCleanup(machine.end)
            yield machine

    def test_the_commands_of_the_guide(self):
        install, log_in, check, run, kill, predict = guides.commands(PAGE)
        first, second = self.machines(self.install(install))
        # Replaces the page's block that asks for passwords, and accepts unknown host keys.
        first.run(
            "mkdir -pm 700 .ssh; umask 77; cat > .ssh/id_ed25519", (self.folder / "key").read_text()
        )
        first.run("cat > .ssh/config", "Host *\n  StrictHostKeyChecking accept-new\n")
        for block in guides.blocks(PAGE):
            if block.title:
                name = shlex.quote(block.title)
                first.run(f"mkdir -p $(dirname {name}); cat > {name}", block.text)
        terminal = first.start("".join([log_in, check, run, predict]))
        self.addCleanup(terminal.kill)
        lines = []
        with contextlib.suppress(StopIteration):
            while not lines or "Epoch 4/" not in lines[-1]:
                lines.append(next(terminal.stdout))
            first.run(kill)
        rest, _ = terminal.communicate(timeout=400)
        output = "".join(lines) + rest
        self.assertEqual(terminal.returncode, 0, output[-5000:])
        # The page shows this output, up to numbers, processors and the home folder.
        shown = "".join(block.text for block in guides.blocks(PAGE) if not block.language)
        shown = shown.replace("/home/me", str(HOME))
        self.assertGreater(shown.count("\n"), 8)
        for line in shown.splitlines():
            words = re.escape(line.partition(" cores")[0])
            with self.subTest(line):
                self.assertRegex(output, re.sub(r"\d+(\\\.\d+)*", r"[\\d.]+", words))
        self.assertRegex(output, r"(?m)^\[0\] Epoch 10/10$")
        self.assertRegex(output, r"(?m)^\[1\.? +0\.? *\]$")
        first.run("test -f first/model.keras -a -f first/served/saved_model.pb")
        second.run("test -f first/train.py -a ! -e first/model.keras")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
