"""`terngrad check` on several machines, with real links."""

import dataclasses
import pathlib
import subprocess
import sys
from unittest import mock

import pytest
import tensorflow as tf
from absl.testing import parameterized

from terngrad_tf.bin.command import check as check_command
from terngrad_tf.launcher import check, probe
from terngrad_tf.launcher import hosts as launcher_hosts
from tests.launcher import hosts

TOLD = {
    **{"terngrad_tf": "0.1.0", "tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6"},
    **{"python": "3.11.7", "processor": "x", "cores": 2, "time": 0.0, "skew": 0.0},
}


class _Link:
    """Instead of a socket to a listening machine: messages take simulated seconds."""

    def __init__(self, bits_per_second, delay):
        self._bits_per_second, self._delay = bits_per_second, delay
        self._sent, self.now = 0, 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def settimeout(self, seconds):
        pass

    def setsockopt(self, *_):
        pass

    def sendall(self, data):
        self._sent += len(data)

    def recv(self, size):
        self.now += self._delay + 8 * (100 + self._sent) / self._bits_per_second
        self._sent = 0
        return probe._PING[:size]


class CheckTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(bits_per_second=(2e3, 3e4, 1e6, 1e8, 1e10), delay=(2e-5, 0.02, 0.2))
    def test_links_of_any_rate_and_delay_are_measured_in_time(self, bits_per_second, delay):
        link = _Link(bits_per_second, delay)
        with (
            mock.patch.object(probe.socket, "create_connection", return_value=link),
            mock.patch.object(probe.time, "perf_counter", lambda: link.now),
        ):
            round_trip, measured = probe.reach("host2", 2222, check._SEND_SECONDS)
        self.assertAllClose(measured, bits_per_second, rtol=0.1)
        self.assertAllClose(round_trip, delay + 808 / bits_per_second, rtol=0.01)
        self.assertLess(link.now, check._ANSWER_SECONDS)

    def test_machines_links_and_faults(self):
        folder = pathlib.Path(self.get_temp_dir()) / "hosts"
        folder.mkdir()
        cluster = hosts.up(self, "tlchk", "10.92.0", folder, link="100mbit")

        def terngrad_check(*arguments):
            command = [sys.executable, "-m", "terngrad_tf", "check", *arguments]
            command += ["--ssh", f"-F {cluster.ssh_config}"]
            command = cluster.network.on_host(0, command)
            done = subprocess.run(
                command, cwd=hosts.ROOT, capture_output=True, text=True, check=False, timeout=100
            )
            return done.stdout.splitlines(), done.returncode, done.stderr

        first, second = cluster.names
        lines, status, errors = terngrad_check("-H", f"{first},{second}", "--weights", "25M")
        self.assertEqual(status, 0, errors)
        self.assertEqual(lines[-1], "no fault found")
        rates = [float(line.split()[3]) for line in lines if " -> " in line]
        self.assertLen(rates, 2)
        for rate in rates:
            self.assertBetween(rate, 20.0, 200.0)
        self.assertIn("expected exchange of 25,000,000 gradients among 2 machines:", lines)
        self.assertTrue([line for line in lines if line.startswith("  float32 (grad_bits=32)")])
        # A port that is in use, and a machine that does not exist.
        taken = "import socket; s = socket.create_server(('', 2222)); print(1, flush=True); input()"
        listener = subprocess.Popen(
            cluster.network.on_host(1, [sys.executable, "-c", taken]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(listener.communicate)
        listener.stdout.readline()
        lines, status, errors = terngrad_check("-H", f"{first},{second},10.92.0.99")
        self.assertEqual(status, 1, errors)
        faults = [line for line in lines if line.startswith("fault: ")]
        self.assertLen(faults, 2)
        self.assertStartsWith(faults[0], "fault: 10.92.0.99: ssh failed: ")
        self.assertStartsWith(faults[1], f"fault: {second} cannot listen on port 2222: Address al")

    def test_what_fails_at_the_other_end_is_one_line(self):
        lost = _Link(1e9, 0.0)
        lost.sendall = mock.Mock(side_effect=[*[None] * probe._PINGS, None, None, TimeoutError])
        strange = _Link(1e9, 0.0)
        strange.recv = lambda size: b"H"
        for link, reason in (
            (lost, "a connection exists, but 1,024 bytes do not arrive; is the MTU too large?"),
            (strange, "another program answers there"),
        ):
            with mock.patch.object(probe.socket, "create_connection", return_value=link):
                self.assertEqual(probe.answer({"reach": ["host2", 2222, 0.1]}), {"failed": reason})

    def test_a_machine_that_ends_before_the_question_is_a_fault(self):
        start, command = subprocess.Popen, ["sh", "-c", "echo no route >&2; exit 255"]

        def ended(*arguments, **options):
            process = start(*arguments, **options)
            process.wait()
            return process

        host = launcher_hosts.Host("host2")
        with (
            mock.patch.object(launcher_hosts.Host, "is_local", return_value=False),
            mock.patch.object(check, "ssh_command", return_value=command),
            mock.patch.object(subprocess, "Popen", side_effect=ended),
        ):
            found = check.check([host], 2222, "python", [], {}, lambda line: None)
        self.assertLen(found.faults, 1)
        self.assertStartsWith(found.faults[0], "host2: ssh failed: no route")

    def test_differences_are_reported(self):
        found = check.Findings()
        found.machines = {
            "a": TOLD,
            "b": TOLD | {"keras": "3.14.1", "python": "3.12.1", "skew": 9.0, "processor": "y"},
            "c": TOLD | {"python": "3.11.2"},
        }
        link = check.Link("a", "b", 1e-3, 1e9)
        found.links = [
            link,
            dataclasses.replace(link, target="c"),
            dataclasses.replace(link, source="b", bits_per_second=4e8),
            check.Link("c", "a", failure="timed out"),
        ]
        check._compare(found)
        self.assertEqual(
            found.faults,
            [
                "a cannot be reached from c: timed out; does a firewall drop it?",
                "b has keras 3.14.1, a has 3.15.1",
            ],
        )
        self.assertEqual(
            found.remarks,
            [
                "b has python 3.12, a has 3.11",
                "the clock of b is +9 s off this machine's",
                "processors differ; every step waits for the slowest machine",
                "b sends to b at 400 Mbit/s, half of the 1,000 between others or less",
            ],
        )

    def test_each_pair_is_measured_once_and_no_machine_measures_two_links_at_a_time(self):
        machines = list("abcde")
        rounds = list(check._rounds(machines))
        for pairs in rounds:
            met = [machine for pair in pairs for machine in pair]
            self.assertLen(set(met), len(met))
        met = [pair for pairs in rounds for pair in pairs]
        self.assertCountEqual(met, [(a, b) for a in machines for b in machines if a != b])

    def test_wrong_arguments_are_one_line(self):
        for arguments, message in (
            (["-H", "a:0"], "`-H` must hold host[:slots]"),
            (["-H", "a", "--weights", "many"], "`--weights` must be a number such as 25M"),
            (["-H", "a", "--weights", "0"], "`--weights` must be a number such as 25M"),
            (["-H", "a", "--port", "0"], "`--port` must be 1 to 65535"),
            (
                ["-H", "a", "--ssh", "'"],
                "`--ssh` must be words as in a shell: No closing quotation",
            ),
        ):
            command = [sys.executable, "-m", "terngrad_tf", "check", *arguments]
            done = subprocess.run(
                command, cwd=hosts.ROOT, capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 2)
            self.assertLen(done.stderr.splitlines(), 1)
            self.assertIn(message, done.stderr)

    def test_units(self):
        self.assertEqual(check_command._number("2.5M"), 2_500_000)
        self.assertEqual(check_command._number("300"), 300)
        self.assertTrue(launcher_hosts.Host("127.0.0.1").is_loopback())


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
