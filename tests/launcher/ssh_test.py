"""Programs over an ssh that is a shell of this machine: greetings, and connections that break."""

import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import pytest

from terngrad_tf.launcher import check as check_module
from terngrad_tf.launcher import nodes
from terngrad_tf.launcher.check import check
from terngrad_tf.launcher.coordinator import Coordinator, Plan
from terngrad_tf.launcher.hosts import Host
from terngrad_tf.launcher.machines import copy_folder
from terngrad_tf.launcher.nodes import LostError, SshNode
from tests.distribute.processes import free_ports

# Prints a greeting, then runs the command after `-- HOST`, with a part of its input.
SSH = """#!/bin/sh
echo 20261129
while [ "$1" != "--" ]; do shift; done
shift 2
{input} sh -c "$*"
"""

# Ends as if a file had changed while it was packed.
TAR = """#!/bin/sh
{tar} "$@" || exit 2
case "$1" in -c*) exit 1;; esac
"""


class SshTest(unittest.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        root = str(pathlib.Path(__file__).resolve().parents[2])
        variables = {"PATH": f"{folder.name}:{os.environ['PATH']}", "PYTHONPATH": root}
        environment = mock.patch.dict(os.environ, variables)
        environment.start()
        self.addCleanup(environment.stop)

    def write(self, of_input):
        self.write_program("ssh", SSH.format(input=of_input))

    def write_program(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def test_a_greeting_that_is_a_number_is_no_message(self):
        self.write("exec")
        node = SshNode(Host("there"), [2222], sys.executable, [], {})
        node.open(queue.SimpleQueue())
        node.close()

    def test_a_machine_is_back_when_its_program_is(self):
        self.write("exec")
        program = {"folder": str(self.folder), "script": "ssh", "command": ["sh"]}
        (port,) = free_ports(1)
        node = SshNode(Host("there"), [port], sys.executable, [], {})
        self.assertTrue(node.reaches(program))
        # A disk is not mounted yet: that of its Python, or of its script.
        self.assertFalse(SshNode(Host("there"), [port], "/no/python", [], {}).reaches(program))
        self.assertFalse(node.reaches(program | {"script": "train.py"}))
        # Its processes of before have not ended yet.
        with socket.create_server(("", port)):
            self.assertFalse(node.reaches(program))

    def test_a_machine_whose_program_hangs_is_not_back(self):
        self.write_program("ssh", "#!/bin/sh\nexec sleep 30\n")
        node = SshNode(Host("there"), [2222], sys.executable, [], {})
        begin = time.monotonic()
        with mock.patch.multiple(nodes, _CONNECT_SECONDS=0.0, SILENCE_SECONDS=0.1):
            self.assertFalse(node.reaches({}))
        self.assertLess(time.monotonic() - begin, 30)

    def test_a_program_whose_connection_broke_may_end_before_it_starts_again(self):
        self.write("exec")
        (port,) = free_ports(1)
        mark = self.folder / "mark"
        # The first one goes on for a second after SIGTERM.
        code = (
            "import os, signal, socket, sys, time\n"
            "if os.path.exists(sys.argv[2]): sys.exit()\n"
            "signal.signal(signal.SIGTERM, lambda *_: time.sleep(1) or sys.exit())\n"
            "server = socket.create_server(('', int(sys.argv[1])))\n"
            "open(sys.argv[2], 'x')\n"
            "time.sleep(60)\n"
        )
        node = SshNode(Host("there"), [port], sys.executable, [], {})

        opened = []

        def cut():
            while not mark.exists():
                time.sleep(0.05)
            # Unnoticed here: the connection ends on this side first.
            node._program._process.stdin.close()
            opened[0].put((node, {"lost": "there: the connection broke"}))

        def open_node(events):
            opened.append(events)
            SshNode.open(node, events)

        node.open = open_node
        command = [sys.executable, "-c", code, str(port), str(mark)]
        plan = Plan(command=command, folder=str(self.folder), max_restarts=1)
        threading.Thread(target=cut, daemon=True).start()
        result = Coordinator(plan, [node], lambda *_: None, lambda _: None).run()
        self.assertEqual(result, (0, None))

    def test_a_machine_without_ssh_says_so(self):
        host, reason = Host("there"), "there: this machine cannot start ssh: No such file or direct"
        node = SshNode(host, [2222], sys.executable, [], {})
        plan = Plan(command=["true"], folder="/")
        tar = shutil.which("tar")
        self.write_program("tar", TAR.format(tar=tar))
        with mock.patch.dict(os.environ, PATH=str(self.folder)):
            status, line = Coordinator(plan, [node], print, print).run()
            self.assertEqual((status, line), (2, f"{reason}ory"))
            self.assertFalse(node.reaches({}))
            found = check([host], 2222, sys.executable, [], {}, lambda line: None)
            self.assertEqual(found.faults, [f"{reason}ory"])
            with self.assertRaisesRegex(LostError, reason):
                copy_folder(host, [])

    def test_ctrl_c_ends_a_check_that_waits_for_an_answer(self):
        self.write_program("ssh", f"#!/bin/sh\n: > {self.folder}/asked\nexec sleep 60\n")
        command = [sys.executable, "-m", "terngrad_tf", "check", "-H", "there.invalid"]
        asking = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(asking.kill)
        while not (self.folder / "asked").exists():
            time.sleep(0.05)
        begin = time.monotonic()
        # As a terminal.
        os.killpg(asking.pid, signal.SIGINT)
        self.assertEqual(asking.wait(60), 130)
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_connection_that_breaks_is_a_fault(self):
        self.write('(read -r line; echo "$line"; read -r line; echo "$line") |')
        found = check([Host("there")], 2222, sys.executable, [], {}, lambda line: None)
        self.assertEqual(list(found.machines), ["there"])
        (fault,) = found.faults
        self.assertIn("there: the connection ended", fault)

    def test_a_machine_that_ends_has_one_reason_whatever_it_is_asked(self):
        self.write_program("ssh", "#!/bin/sh\nread -r line; echo {}; printf 'caf\\351\\n' >&2\n")
        machine = check_module._Machine(Host("there"), sys.executable, [], {})
        self.addCleanup(machine.close)
        self.assertEqual(machine.ask({"tell": True}), {})
        machine._program._process.wait()
        for _ in range(3):
            with self.assertRaisesRegex(LostError, "^there: caf\ufffd$"):
                machine.ask({"tell": True})

    def test_a_folder_in_which_a_file_changes_is_copied(self):
        self.write("")
        self.write_program("tar", TAR.format(tar=shutil.which("tar")))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(tempfile.mkdtemp(dir=self.folder))
        copy_folder(Host("there"), [])


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
