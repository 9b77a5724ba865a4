"""An error between machines is one line on the terminal of the command."""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

from tests.launcher import hosts

SCRIPT = str(pathlib.Path(__file__).with_name("train.py"))
KERAS = str(pathlib.Path(__file__).with_name("train_keras.py"))
TRAINING_PORT = 2222
# Timeout for a line. Idle machines show each within 30 s.
PATIENCE_SECONDS = 100


class Terminal:
    """A command and its output lines.

    Args:
        process: `subprocess.Popen` with text pipes.
    """

    def __init__(self, process):
        self.process = process
        self.lines = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream):
        for line in stream:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, pattern):
        """Waits for a line that matches a pattern; returns it, or None if the command ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            is_over = self.process.poll() is not None
            if is_over:
                for reader in self._readers:
                    reader.join(5)
            for line in list(self.lines):
                if re.search(pattern, line):
                    return line
            if is_over:
                break
            time.sleep(0.1)
        return None

    def status(self):
        """Waits for the end, and returns the exit status."""
        return self.process.wait(PATIENCE_SECONDS)

    def own_lines(self):
        """Returns the lines of `terngrad run` itself."""
        return [line for line in self.lines if line.startswith("terngrad run: ")]


@pytest.mark.long
class MessagesTest(tf.test.TestCase):
    """Four hosts: the user's, one with full disks, one that freezes, one behind a firewall."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.get_temp_dir()) / self.id().rpartition(".")[2]
        self.empty = self.folder / "empty"
        self.empty.mkdir(parents=True)
        self.cluster = hosts.up(
            self, "tlmsg", "10.94.0", self.folder, num_hosts=4, mounts=[self.empty]
        )
        self.names = self.cluster.names
        self.port = 3000

    def terminal(self, *arguments, host=0, ssh="", folder=None, **environment):
        """Starts `terngrad run` on a host, on unused ports if it gets hosts."""
        own = ()
        if "-H" in arguments:
            self.port += 10
            own = ("--ssh", f"-F {self.cluster.ssh_config} {ssh}")
            own += () if "--port" in arguments else ("--port", str(self.port))
        process = self.cluster.start(
            *own, *arguments, host=host, folder=folder or self.folder, **environment
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return Terminal(process)

    def wrapper(self, name, path):
        """Returns a Python that finds modules in `path` first, like another installation."""
        python = self.folder / name
        path = shlex.quote(str(path))
        python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        return str(python)

    def check(self, terminal, status, pattern):
        """Checks the exit status, and that `terngrad run` itself wrote one matching line."""
        self.assertEqual(terminal.status(), status, terminal.lines)
        self.assertIsNotNone(terminal.wait_for(pattern), terminal.lines)
        self.assertLen(terminal.own_lines(), 1)
        self.assertRegex(terminal.own_lines()[0], pattern)

    def test_before_the_processes_start(self):
        first, second, _, fourth = self.names
        both = ("-H", f"{first},{second}")
        script = self.empty / "own.py"
        script.write_text("print(1)\n")
        # Other installations: another version, and a clock that is an hour ahead.
        other = self.folder / "other"
        for part in ("common", "launcher"):
            shutil.copytree(hosts.ROOT / "terngrad_tf" / part, other / "terngrad_tf" / part)
        for file in (hosts.ROOT / "terngrad_tf").glob("*.py"):
            shutil.copy(file, other / "terngrad_tf")
        (other / "terngrad_tf" / "version.py").write_text('__version__ = "0.0.1"\n')
        skewed = self.folder / "skewed"
        skewed.mkdir()
        (skewed / "sitecustomize.py").write_text(
            "import time\nnow = time.time\ntime.time = lambda: now() + 3600\n"
        )
        taken = "import socket; s = socket.create_server(('', 4000)); print(1, flush=True); input()"
        listener = subprocess.Popen(
            self.cluster.network.on_host(1, [sys.executable, "-c", taken]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(listener.communicate)
        listener.stdout.readline()
        drop = self.firewall(3, "tcp dport 2200 drop")
        keyless = self.folder / "keyless"
        text = self.cluster.ssh_config.read_text()
        keyless.write_text(re.sub("IdentityFile .*", "IdentityFile none", text))
        version = self.wrapper("version", other)
        clock = self.wrapper("clock", f"{skewed}:{hosts.ROOT}")
        rows = [
            # A host that is down or misspelled.
            (
                ("-H", f"{first},10.94.0.99", SCRIPT),
                {},
                2,
                r"10\.94\.0\.99: ssh failed: .*No route.*E81",
            ),
            (
                ("-H", f"{first},no-such-host", SCRIPT),
                {},
                2,
                "no-such-host: ssh failed: .*resolve.*E82",
            ),
            # A wrong ssh port.
            (
                (*both, SCRIPT),
                {"ssh": "-p 2299"},
                2,
                f"{second}: ssh failed: .*Connection refused.*E83",
            ),
            # A port in use on the other host.
            (
                (*both, "--port", "4000", SCRIPT),
                {},
                2,
                f"{second}: cannot listen on port 4000: another program .*--port takes .*E86",
            ),
            # No key.
            (
                (*both, SCRIPT),
                {"ssh": f"-F {keyless}"},
                2,
                f"{second}: ssh failed: .*Permission denied.*must work without a password.*E85",
            ),
            # Another Python, another version, another clock.
            (
                (*both, "--python", "/nope", "-m", "this"),
                {},
                2,
                f"{second}: has no program /nope.*E87",
            ),
            (
                (*both, "--python", version, SCRIPT),
                {},
                2,
                rf"{second} has terngrad_tf 0\.0\.1, this machine .*E33",
            ),
            (
                (*both, "--python", clock, SCRIPT, "end"),
                {},
                0,
                rf"the clock of {second} is \+3600 s off this machine",
            ),
            # A TF_CONFIG that is already set.
            ((*both, SCRIPT), {"TF_CONFIG": "{}"}, 2, "TF_CONFIG is set already; unset it.*E90"),
            # A missing script on the other host, and a full disk.
            (
                (*both, str(script)),
                {},
                2,
                f"{second}: no file {script}; copy it there, or use --sync .*E91",
            ),
            (
                (*both, SCRIPT, "fill", str(self.empty)),
                {},
                1,
                f"worker 1 on {second} ended with status 1: OSError: .*No space left .*E92",
            ),
            # A host without terngrad_tf.
            (
                (*both, "--python", "/usr/bin/python3", SCRIPT),
                {"PYTHONPATH": ""},
                2,
                f"{second}: its /usr/bin/python3 has no terngrad_tf .*install it there.*E89",
            ),
        ]
        if old := next(pathlib.Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python"), None):
            line = rf"{second}: its Python is 3\.\d, and must be 3\.10 or newer.*E88"
            rows.append(((*both, "--python", str(old), "-m", "this"), {}, 2, line))
        if drop:
            # A firewall.
            row = (
                ("-H", f"{first},{fourth}", SCRIPT),
                {},
                2,
                f"{fourth}: ssh failed: .*timed out.*E84",
            )
            rows.append(row)
        for arguments, more, *expected in rows:
            with self.subTest(arguments=arguments, **more):
                self.check(self.terminal(*arguments, **more), *expected)

    def firewall(self, host, rule):
        """Drops packets to a host; returns False if this machine has no firewall."""
        if shutil.which("nft") is None:
            return False
        rules = f"table inet f {{ chain c {{ type filter hook input priority 0; {rule}; }}; }}"
        done = subprocess.run(
            self.cluster.network.on_host(host, ["nft", rules]), capture_output=True, text=True
        )
        return done.returncode == 0

    def test_started_by_hand(self):
        chief = ("--nodes", "2", "--chief", f"{self.names[0]}:2300")
        wrong = ("--nodes", "2", "--chief", f"{self.names[0]}:2399")
        first = self.terminal(*chief, "--node", "0", SCRIPT)
        second = self.terminal(*wrong, "--node", "1", SCRIPT, host=1)
        line = r"waiting for machine 0: 10\.94\.0\.1:2399 does not answer: Connection refused"
        self.assertIsNotNone(second.wait_for(line), second.lines)
        self.assertIsNotNone(first.wait_for("waiting for machine 1$"), first.lines)
        for terminal in (first, second):
            self.assertLen(terminal.own_lines(), 1)

    def test_while_processes_run(self):
        first, _, third, fourth = self.names
        if not self.firewall(3, f"tcp dport {TRAINING_PORT} drop"):
            self.skipTest("needs nft, and a kernel that has it: apt-get install nftables")
        port = ("--port", str(TRAINING_PORT))
        blocked = self.terminal(*port, "-H", f"{first},{fourth}", KERAS)
        frozen = self.terminal("-H", f"{first},{third}", SCRIPT, "wait")
        self.assertIsNotNone(frozen.wait_for(r"\[1\] ready"), frozen.lines)
        # Stops all processes of the third host.
        pids = subprocess.run(
            ["ip", "netns", "pids", "tlmsg2"], capture_output=True, text=True, check=True
        ).stdout.split()
        for pid in pids:
            os.kill(int(pid), signal.SIGSTOP)
        try:
            self.assertEqual(frozen.status(), 3, frozen.lines)
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGCONT)
        # Either ssh or the missing heartbeats report it first.
        self.assertLen(frozen.own_lines(), 1)
        self.assertRegex(
            frozen.own_lines()[0],
            f"lost {third}: (no sign of life for 20 s|the connection broke, or).*E93",
        )
        line = r"^\[0\] waiting for worker 1 \(10\.94\.0\.4:2222: timed out\)$"
        self.assertIsNotNone(blocked.wait_for(line), blocked.lines)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
