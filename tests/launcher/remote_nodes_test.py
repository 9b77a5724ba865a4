"""Machines on which users start the command prove to each other that they share a token."""

import json
import socket
import sys
import threading
import unittest

import pytest

from terngrad_tf.launcher import remote_nodes
from terngrad_tf.launcher.nodes import LostError
from tests.distribute.processes import free_ports

TOKEN = "a secret of many letters"


class TokenTest(unittest.TestCase):
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

    def join(self, server):
        """Joins as machine 1, in the main thread."""
        address, ports = server.getsockname(), free_ports(1)
        ignored = [lambda *_: None] * 2
        return remote_nodes.join(address, 1, "", ports, TOKEN, 10, *ignored)


def _pass(source, target):
    """Passes a line on, and returns it."""
    line = source.readline()
    target.write(line)
    target.flush()
    return line


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
