"""Tests of how processes greet each other, over sockets on loopback."""

import concurrent.futures
import contextlib
import socket
import sys
import time
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.distribute.cluster import greetings
from terngrad_tf.distribute.communication import connections
from tests.distribute import processes

TOKEN = "0123456789abcdef"


class GreetingsTest(tf.test.TestCase):
    def listen(self):
        """A server and its address."""
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        return server, f"127.0.0.1:{server.getsockname()[1]}"

    def test_processes_learn_each_others_names_whatever_else_is_sent_to_the_port(self):
        (port,) = processes.free_ports(1)
        address = f"127.0.0.1:{port}"
        with greetings.answering(port, lambda: "worker 0 of 2") as heard:
            kept = socket.create_connection(("127.0.0.1", port))
            self.addCleanup(kept.close)
            for sent in (
                b"",
                b"\n",
                b"GET / HTTP/1.1\r\n\r\n",
                b"terngrad_tf \xff\n",
                b"x" * 10**6,
            ):
                # The process may hang up meanwhile; ENOTCONN is no ConnectionError.
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", port)) as other,
                ):
                    other.sendall(sent)
                    other.shutdown(socket.SHUT_WR)
                    self.assertEqual(other.recv(100), b"")
            self.assertEqual(heard.names(), [])
            self.assertEqual(greetings.greet(address, "worker 1 of 2"), ("worker 0 of 2", None))
            # The process notes a name only after it has sent the answer.
            deadline = time.monotonic() + 30
            while not heard.names() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertEqual(heard.names(), ["worker 1 of 2"])
        self.assertEqual(greetings.greet(address, "worker 1"), (None, connections.REFUSED))

    def test_another_program_on_a_port_is_no_process_of_the_cluster(self):
        foreign = None, "another program answers there"
        self.enter_context(mock.patch.object(greetings, "GREETING_SECONDS", 1.5))
        for said in (
            b"",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\x00" * 500,
            b"terngrad_tf \x1b\n",
        ):
            server, address = self.listen()
            with concurrent.futures.ThreadPoolExecutor() as pool:
                answer = pool.submit(greetings.greet, address, "worker 1")
                connection, _ = server.accept()
                connection.sendall(said)
                self.assertEqual(answer.result(), foreign)
                connection.close()

    def meet(self, own_token, other_token):
        """Returns what the greeting process learns, and the names that the answering one met."""
        (port,) = processes.free_ports(1)
        with greetings.answering(port, lambda: "worker 0", other_token) as heard:
            found = greetings.greet(f"127.0.0.1:{port}", "worker 1", own_token)
            deadline = time.monotonic() + (30 if own_token == other_token else 0.3)
            while not heard.names() and time.monotonic() < deadline:
                time.sleep(0.01)
            return found, heard.names()

    def test_only_processes_with_the_same_token_meet_and_both_know_why_not(self):
        other = TOKEN + "!"
        self.assertEqual(self.meet(TOKEN, TOKEN), (("worker 0", None), ["worker 1"]))
        for own, others, why in (
            (TOKEN, other, greetings.OTHER_TOKEN),
            (TOKEN, None, greetings.NO_TOKEN),
            (None, TOKEN, greetings.TOKEN_WANTED),
        ):
            self.assertEqual(self.meet(own, others), ((None, why), []))

    def lines_of_both(self):
        """The lines that each of two processes with the token sends when they meet."""
        (port,) = processes.free_ports(1)
        recorder, address = self.listen()
        with (
            greetings.answering(port, lambda: "worker 0", TOKEN),
            concurrent.futures.ThreadPoolExecutor() as pool,
        ):
            greeting = pool.submit(greetings.greet, address, "worker 1", TOKEN)
            client, _ = recorder.accept()
            server = socket.create_connection(("127.0.0.1", port))
            with client, server, client.makefile("rwb") as one, server.makefile("rwb") as two:
                said = []
                for source, target in ((one, two), (two, one), (one, two), (two, one)):
                    said.append(source.readline())
                    target.write(said[-1])
                    target.flush()
            self.assertEqual(greeting.result(), ("worker 0", None))
        return said[::2], said[1::2]

    def test_overheard_lines_let_no_stranger_in(self):
        of_client, of_server = self.lines_of_both()
        for line in of_client + of_server:
            self.assertNotIn(TOKEN.encode(), line)
        (port,) = processes.free_ports(1)
        with greetings.answering(port, lambda: "worker 0", TOKEN) as heard:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"".join(of_client))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1000):
                    pass
            self.assertEqual(heard.names(), [])
        server, address = self.listen()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            greeting = pool.submit(greetings.greet, address, "worker 1", TOKEN)
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"".join(of_server))
                self.assertEqual(greeting.result(), (None, greetings.OTHER_TOKEN))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
