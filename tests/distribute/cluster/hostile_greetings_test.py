"""Strangers at a cluster's addresses and ports delay no process; sockets on loopback."""

import concurrent.futures
import contextlib
import socket
import sys
import threading
import time
import tracemalloc
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.distribute import cluster_from_hosts
from terngrad_tf.distribute.cluster import greetings, rendezvous
from terngrad_tf.distribute.communication import peers
from terngrad_tf.distribute.elastic import join
from tests import runs
from tests.distribute import processes

TOKEN = "0123456789abcdef"
GREETING_SECONDS = 1.5
# If each byte had its own limit, a greeting could take many times as long.
SLOW_BYTES = 60


@contextlib.contextmanager
def stranger(answer, port=0):
    """Listens and passes each connection to `answer` in a thread; yields the port."""
    server = socket.create_server(("127.0.0.1", port))
    is_over = threading.Event()

    def serve():
        with contextlib.suppress(OSError):
            while not is_over.is_set():
                connection, _ = server.accept()
                threading.Thread(
                    target=talk, args=(answer, connection, is_over), daemon=True
                ).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        is_over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def talk(answer, connection, is_over):
    with connection, contextlib.suppress(OSError):
        answer(connection, is_over)


def drips(connection, is_over):
    """Sends a line so slowly that only each byte by itself is in time."""
    for byte in b"terngrad_tf " + b"x" * SLOW_BYTES:
        connection.sendall(bytes([byte]))
        if is_over.wait(1.0):
            return


def says(*lines):
    """Answers each greeting with these lines."""

    def answer(connection, is_over):
        for line in lines:
            connection.recv(greetings.MOST_BYTES)
            connection.sendall(line)
        is_over.wait(0.2)

    return answer


def wait(addresses, timeout, token=None):
    """Why worker 0 does not meet the others; None if it does."""
    names = tuple(f"worker {index}" for index in range(len(addresses)))
    try:
        rendezvous.wait_for_peers(peers.Tasks(names, tuple(addresses), 0), timeout, token)
    except peers.PeerError as error:
        return str(error)
    return None


class HostileGreetingsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(greetings, "GREETING_SECONDS", GREETING_SECONDS))

    def assert_short(self, begin):
        # Not a measurement: a limit per byte would take many times as long.
        self.assertLess(time.monotonic() - begin, SLOW_BYTES / 2)

    @pytest.mark.slow
    def test_a_greeting_ends_however_slowly_its_bytes_come(self):
        (own,) = processes.free_ports(1)
        with stranger(drips) as port:
            address = f"127.0.0.1:{port}"
            begin = time.monotonic()
            for token in (None, TOKEN):
                found = greetings.greet(address, "worker 0", token)
                self.assertEqual(found, (None, greetings.OTHER_PROGRAM))
            error = wait([f"127.0.0.1:{own}", address], 1)
            self.assert_short(begin)
        self.assertEqual(
            error,
            "not all processes started in time; missing:"
            f" worker 1 ({address}: {greetings.OTHER_PROGRAM})",
        )

    def test_the_process_that_answers_takes_no_slow_line(self):
        (port,) = processes.free_ports(1)
        begin = time.monotonic()
        with (
            greetings.answering(port, lambda: "worker 0", TOKEN) as heard,
            socket.create_connection(("127.0.0.1", port)) as connection,
        ):
            is_over = threading.Event()
            dripping = threading.Thread(target=talk, args=(drips, connection, is_over))
            dripping.start()
            # The process hangs up even while bytes arrive.
            with contextlib.suppress(ConnectionError):
                self.assertEqual(connection.recv(100), b"")
            is_over.set()
            dripping.join()
            self.assertEqual(heard.names(), [])
        self.assert_short(begin)

    def test_training_ends_even_if_strangers_hold_other_workers_addresses(self):
        own, absent = processes.free_ports(2)
        hosts = f"127.0.0.1:{own},127.0.0.1:{absent}"
        membership = join.join_cluster(
            cluster_from_hosts(worker_hosts=hosts),
            runs.class_folder(type(self)) / "run",
            lambda: None,
            join_timeout=0.0,
        )
        with stranger(drips, absent):
            begin = time.monotonic()
            with membership.watch() as found:
                time.sleep(join._WATCH_SECONDS + 1)  # long enough for a first look
            self.assert_short(begin)
        self.assertEqual(found(), "")

    def test_messages_of_strangers_take_limited_memory(self):
        heard = greetings.Heard()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for number in range(20_000):
            heard.add(f"{number}".ljust(greetings.MOST_BYTES - 100, "x"))
        heard.add("worker 1")
        _, most = tracemalloc.get_traced_memory()
        self.assertLess(most, 16 * 2**20)
        self.assertIn("worker 1", heard.names())
        # A peer that is heard again is not forgotten.
        for number in range(20_000):
            heard.add(f"{number}".ljust(greetings.MOST_BYTES - 100, "x"))
            heard.add("worker 1")
        self.assertIn("worker 1", heard.names())

    def test_names_without_the_token_are_not_kept(self):
        (port,) = processes.free_ports(1)
        with greetings.answering(port, lambda: "worker 0", TOKEN) as heard:
            for number in range(50):
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.sendall(f"terngrad_tf {number} # 1\nterngrad_tf 2\n".encode())
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1000):
                        pass
            self.assertEqual(heard.names(), [])

    @pytest.mark.slow
    def test_a_wrong_answer_at_an_absent_peers_address_does_not_end_the_wait(self):
        for line, why in (
            (b"terngrad_tf worker 1 of 2\n", greetings.NO_TOKEN),
            (b"terngrad_tf worker 1 of 2 # 12 # 34\n", greetings.OTHER_TOKEN),
            # A number without a proof.
            (b"terngrad_tf worker 1 of 2 # 12\n", greetings.OTHER_TOKEN),
        ):
            addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(2)]
            port = int(addresses[1].rpartition(":")[2])
            with concurrent.futures.ThreadPoolExecutor() as pool:
                with (
                    stranger(says(line), port),
                    self.assertLogs("terngrad_tf.distribute.cluster.refusals", "WARNING") as logs,
                ):
                    waiting = pool.submit(wait, addresses, 60, TOKEN)
                    deadline = time.monotonic() + 30
                    while not logs.output and time.monotonic() < deadline:
                        time.sleep(0.1)
                    time.sleep(1)
                    self.assertFalse(waiting.done())
                (message,) = logs.output
                rule = "all processes of a cluster need the same token"
                self.assertEndsWith(
                    message, f"waiting for another process: worker 1 ({addresses[1]}) {why}: {rule}"
                )
                # The right process starts.
                tasks = peers.Tasks(("worker 0", "worker 1"), tuple(addresses), 1)
                rendezvous.wait_for_peers(tasks, 60, TOKEN)
                self.assertIsNone(waiting.result())

    def test_invalid_answers_do_not_end_the_wait(self):
        own, other = processes.free_ports(2)
        for line in (b"terngrad_tf hello\n", b"terngrad_tf worker 1 of 2\n", b"terngrad_tf {}\n"):
            with stranger(says(line), other):
                error = wait([f"127.0.0.1:{own}", f"127.0.0.1:{other}"], 1)
            self.assertStartsWith(error, "not all processes started in time; missing: worker 1 (")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
