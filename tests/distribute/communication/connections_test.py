"""Tests of connections to other processes: losing and closing them."""

import contextlib
import socket
import sys
import threading

import pytest
import tensorflow as tf

from terngrad_tf.distribute.communication import connections


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


class ConnectionsTest(tf.test.TestCase):
    def listen(self, host="127.0.0.1"):
        """A server and its address."""
        server = self.server(f"[{host}]:0" if ":" in host else f"{host}:0")
        self.addCleanup(server.close)
        port = server.getsockname()[1]
        return server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def server(self, address):
        """A server on an address."""
        host, port = _pair(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)

    def connect(self, server, family=None, host=None):
        """A connection to a server: the client's end."""
        connection = socket.socket(family or server.family)
        self.addCleanup(connection.close)
        address, port, *_ = server.getsockname()
        connection.connect((host or address, port))
        connection.settimeout(0.2)
        return connection

    def answer(self, server):
        """Sends a message first to whoever connects, as gRPC does, until the server is closed."""

        def run():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(b"first")

        thread = threading.Thread(target=run)
        thread.start()

        def end():
            # Closing alone does not wake a thread that accepts.
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join()

        self.addCleanup(end)
        return end

    def test_a_lost_process_is_known_with_the_time_since_when(self):
        watch = connections.Watch()
        server, address = self.listen()
        end = self.answer(server)
        self.assertEqual(watch.look(address), (None, 0.0))
        end()
        self.assertEqual(watch.look(address)[0], connections.REFUSED)
        failure, seconds = watch.look(address)
        self.assertEqual(failure, connections.REFUSED)
        self.assertGreater(seconds, 0.0)
        again = socket.create_server(server_address := _pair(address))
        self.answer(again)
        self.assertEqual(again.getsockname(), server_address)
        self.assertEqual(watch.look(address), (None, 0.0))

    def test_a_process_that_is_connected_but_does_not_answer_counts_as_lost(self):
        """As one that is suspended."""
        watch = connections.Watch()
        _, address = self.listen()
        self.assertEqual(watch.look(address), ("timed out", 0.0))

    def test_hanging_up_ends_the_connections_to_an_address_and_no_others(self):
        for host in ("127.0.0.1", "::1") if has_ipv6() else ("127.0.0.1",):
            server, address = self.listen(host)
            other, _ = self.listen(host)
            kept, closed = self.connect(other), [self.connect(server) for _ in range(2)]
            connections.shutdown_sockets(address)
            for connection in closed:
                self.assertEqual(connection.recv(1), b"")
            with self.assertRaises(TimeoutError):
                kept.recv(1)

    @pytest.mark.skipif(not has_ipv6(), reason="needs IPv6")
    def test_hanging_up_knows_names_and_addresses_of_ipv4_inside_ipv6(self):
        server, address = self.listen()
        connection = self.connect(server, socket.AF_INET6, "::ffff:127.0.0.1")
        connections.shutdown_sockets(f"localhost:{_pair(address)[1]}")
        self.assertEqual(connection.recv(1), b"")

    def test_hanging_up_on_an_unknown_name_does_nothing(self):
        server, _ = self.listen()
        connection = self.connect(server)
        connections.shutdown_sockets("no-such-host.invalid:1")
        with self.assertRaises(TimeoutError):
            connection.recv(1)


def _pair(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
