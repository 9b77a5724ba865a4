"""Machines on which users start the command prove to each other that they share a token."""

import json
import queue
import socket
import sys
import threading
import time
import unittest
from unittest import mock

import pytest

from terngrad_tf.launcher import remote_nodes
from terngrad_tf.launcher.nodes import LostError
from terngrad_tf.version import __version__
from tests.distribute.processes import free_ports

TOKEN = "a secret of many letters"
WRONG = (
    *(("version", "0"), ("node", 2), ("node", True), ("node", [1]), ("name", 5)),
    *(("name", "a b"), ("ports", "12"), ("ports", []), ("ports", [0]), ("ports", [1 << 16])),
    *(("number", 7), ("seal", None), ("time", "now"), ("time", float("nan"))),
)


class TokenTest(unittest.TestCase):
    def test_both_ends_notice_within_seconds_that_a_message_does_not_arrive(self):
        with socket.create_server(("127.0.0.1", 0)) as sock:
            listener = remote_nodes.Listener(sock, 2, TOKEN)
            address = sock.getsockname()
            own = _join_as_machine_1(address, [1], TOKEN)
            other = listener.wait(1, 60.0).connection
            for connection in (own, other):
                with connection:
                    limit = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                    self.assertEqual(limit, 20_000)

    def test_a_port_in_use_is_told_with_its_reason_alone(self):
        (port,) = free_ports(1)
        line = f"^cannot listen on port {port}: Address already in use$"
        with remote_nodes.listen(port, 2, None), self.assertRaisesRegex(LostError, line):
            with remote_nodes.listen(port, 2, None):
                pass

    def test_a_stranger_who_saw_a_meeting_cannot_repeat_it(self):
        with (
            socket.create_server(("127.0.0.1", 0)) as real,
            socket.create_server(("127.0.0.1", 0)) as strange,
        ):
            remote_nodes.Listener(real, 2, TOKEN)
            seen = []

            def see():
                with (
                    strange.accept()[0] as one,
                    socket.create_connection(real.getsockname()) as other,
                ):
                    to_one, to_other = one.makefile("rwb"), other.makefile("rwb")
                    seen.append(_pass(to_other, to_one))
                    _pass(to_one, to_other)
                    seen.append(_pass(to_other, to_one))

            def repeat():
                with strange.accept()[0] as connection:
                    stream = connection.makefile("rwb")
                    for line in (*seen, json.dumps({"over": [0, None]}).encode() + b"\n"):
                        stream.write(line)
                    stream.flush()
                    stream.read()

            thread = threading.Thread(target=see)
            thread.start()
            # The connection ends after the welcome.
            self.assertEqual(self.join(strange), {})
            thread.join()
            self.assertIn("welcome", json.loads(seen[1]))
            thread = threading.Thread(target=repeat)
            thread.start()
            with self.assertRaisesRegex(LostError, "has another token"):
                self.join(strange)
            thread.join()

    def test_strangers_who_greet_slowly_or_wrongly_are_turned_away(self):
        whole = {"version": __version__, "node": 1, "name": "", "ports": [2222], "seal": ""}
        whole |= {"number": "7", "time": 0.0}
        wrong = [{**whole, key: value} for key, value in WRONG]
        wrong += [{k: v for k, v in whole.items() if k != key} for key in whole]
        lines = [*map(json.dumps, wrong), "[" * 100_000, "7", "[]", ""]
        with socket.create_server(("127.0.0.1", 0)) as server:
            listener = remote_nodes.Listener(server, 2, None)
            for line in lines:
                with self.subTest(line=line[:100]):
                    self.assertNotIn(b"welcome", _answer(server, line))
            # A byte now and then ends no limit.
            with (
                mock.patch.object(remote_nodes, "_GREETING_SECONDS", 0.5),
                socket.create_connection(server.getsockname(), timeout=60) as slow,
            ):
                with self.assertRaises(OSError):
                    for _ in range(300):
                        slow.sendall(b" ")
                        time.sleep(0.1)
            self.assertFalse(listener.has(1))
            # The first one was ended, as by Ctrl-C, before the run took it in.
            self.assertIn(b"welcome", _answer(server, json.dumps(whole)))
            deadline = time.monotonic() + 60
            while listener._waiting[1].empty() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertFalse(listener.has(1))
            with _join_as_machine_1(server.getsockname(), [2223], None):
                self.assertEqual(listener.wait(1, 60).told["ports"], [2223])

    def test_a_machine_that_was_there_is_awaited_for_seconds_only(self):
        # Its run may go on without it.
        with socket.create_server(("127.0.0.1", 0)) as server:
            node = remote_nodes.SocketNode(1, remote_nodes.Listener(server, 2, None), 60.0)
            connection = _join_as_machine_1(server.getsockname(), [2222], None)
            with connection, mock.patch.object(remote_nodes, "_AGAIN_SECONDS", 0.1):
                node.open(queue.SimpleQueue())
                node.close()
                with self.assertRaises(LostError):
                    node.open(queue.SimpleQueue())

    def join(self, server):
        """Joins as machine 1, in the main thread."""
        address, ports = server.getsockname(), free_ports(1)
        ignored = [lambda *_: None] * 2
        return remote_nodes.join(address, 1, "", ports, TOKEN, 10, *ignored)


def _join_as_machine_1(address, ports, token):
    """Returns the connection of a machine that was admitted."""
    connection = remote_nodes._connect(address, 60.0, print)
    remote_nodes._introduce(connection, address, 1, "", ports, token)
    return connection


def _answer(server, line):
    """Returns the answer to a first message."""
    with socket.create_connection(server.getsockname(), timeout=60) as connection:
        stream = connection.makefile("rwb")
        stream.readline()
        stream.write(line.encode() + b"\n")
        stream.flush()
        try:
            return stream.readline()
        except ConnectionResetError:
            return b""


def _pass(source, target):
    """Passes a line on, and returns it."""
    line = source.readline()
    target.write(line)
    target.flush()
    return line


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
