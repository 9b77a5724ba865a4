"""An agent starts all processes of its machine, or none, and bounds their unread output."""

import contextlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import unittest
from unittest import mock

import pytest

from terngrad_tf.launcher import agent as agent_module
from terngrad_tf.launcher.agent import Agent
from terngrad_tf.launcher.output.window import size_of
from tests.distribute.processes import free_ports


class AgentTest(unittest.TestCase):
    def test_a_process_that_cannot_start_ends_the_others_of_its_machine(self):
        told = []
        agent = Agent(told.append)
        # No system takes a variable of this length.
        environments = {}, {"TOO_LONG": "x" * 2**24}
        job = {
            "folder": "/",
            "command": ["sleep", "60"],
            "environment": {},
            "processes": [
                {"rank": rank, "port": port, "environment": environment}
                for rank, (port, environment) in enumerate(
                    zip(free_ports(2), environments, strict=True)
                )
            ],
        }
        agent.handle({"start": job})
        self.assertEqual(told, [{"refused": ["cannot start: Argument list too long", ""]}])
        self.assertNotIn("sleep", _names_of_children())

    def test_all_processes_together_have_the_time_to_end(self):
        now = [0.0]

        def join(seconds):
            now[0] += seconds

        agent = Agent(print)
        agent._waiters = [mock.Mock(join=join) for _ in range(8)]
        with mock.patch.object(agent_module.time, "monotonic", lambda: now[0]):
            agent.end(10.0)
        self.assertEqual(now, [10.0])

    def test_a_process_waits_for_the_reader_of_its_lines_and_then_goes_on(self):
        told = queue.SimpleQueue()
        agent = Agent(told.put)
        self.addCleanup(agent.end, 0.0)
        # Far more than may wait at once.
        line, count = "y" * 99, 50_000
        job = {"folder": "/", "command": ["sh", "-c", f"yes {line} | head -{count}; echo end >&2"]}
        job |= {"environment": {}, "processes": [{"rank": 3, "port": 0, "environment": {}}]}
        agent.handle({"start": job})
        seen, most = 0, 0
        while "exit" not in (message := told.get(timeout=60)):
            most = max(most, told.qsize())
            rank, _, text = message["line"]
            agent.handle({"shown": [rank, size_of(text)]})
            seen += text == line
        self.assertEqual((seen, message["exit"]), (count, [3, 0, "end"]))
        self.assertLess(most, 5000)

    def test_the_last_line_of_an_error_of_tensorflow_is_its_reason(self):
        after = [
            "\t [[{{node EagerPyFunc}}]]",
            "0 successful operations.",
            "0 derived errors ignored.",
            "The error could be from a previous operation. Restart your program to reset.",
            "\t [[IteratorGetNext]] [Op:__inference_step_1]",
        ]
        for reason in (
            "UnknownError: no disk",
            "[[1, 2], [3]] is no matrix",
            "3 derived errors found",
            "    [[nan]]",
        ):
            told, lines = queue.SimpleQueue(), ["before", reason, *after]
            agent = Agent(told.put)
            self.addCleanup(agent.end, 0.0)
            command = ["sh", "-c", "printf '%s\\n' \"$@\" >&2", "sh", *lines]
            job = {"folder": "/", "command": command}
            job |= {"environment": {}, "processes": [{"rank": 0, "port": 0, "environment": {}}]}
            agent.handle({"start": job})
            shown = []
            while "exit" not in (message := told.get(timeout=60)):
                shown.append(message["line"][2])
            self.assertEqual((shown, message["exit"]), (lines, [0, 0, reason]))

    def test_ctrl_c_reaches_a_program_on_another_machine(self):
        code = "import sys; from terngrad_tf.launcher import agent; sys.exit(agent.main())"
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
            assert process.stdin is not None and process.stdout is not None

            def send(message):
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()

            job = {"folder": "/", "command": ["sleep", "60"], "environment": {}}
            send({"start": job | {"processes": [{"rank": 3, "port": 0, "environment": {}}]}})
            send({"signal": signal.SIGINT})
            messages = map(json.loads, process.stdout)
            told = next(message for message in messages if "exit" in message)
            process.stdin.close()
        self.assertEqual(told, {"exit": [3, -signal.SIGINT, ""]})


def _names_of_children():
    """Returns the names of this process's children, also of those that ended unnoticed."""
    names = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(") ")
            if int(rest.split()[1]) == os.getpid():
                names.append(name)
    return names


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
