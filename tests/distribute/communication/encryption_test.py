"""Tests of what others see of a cluster behind WireGuard, in network namespaces, as root."""

import contextlib
import io
import json
import pathlib
import socket
import sys
import threading

import pytest
import tensorflow as tf

from benchmarks.lib import encrypted_links
from terngrad_tf.distribute import TernGradStrategy
from tests.distribute import processes
from tests.distribute.communication import failing_worker, network

WORKER = pathlib.Path(__file__).with_name("failing_worker.py")
PREFIX = "tgn"
NUM_HOSTS = 2
NUM_STEPS = 5
TIMEOUT_SECONDS = 200
# Linux's number for packets of all kinds, Ethernet's for IPv4, and IPv4's for TCP and UDP.
ALL_KINDS, IPV4, TCP, UDP = 0x0003, 0x0800, 6, 17
# Multicast addresses begin with this number or a larger one.
MULTICAST = 224


class Tap(threading.Thread):
    """Reads all packets of an interface until `close`.

    Attributes:
        seen: set of (protocol, port of the receiver) of all IPv4 packets from host to host.
    """

    def __init__(self, interface):
        super().__init__()
        self.seen = set()
        self._over = threading.Event()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_KINDS))
        self._socket.bind((interface, 0))
        self._socket.settimeout(0.2)

    def run(self):
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                frame = self._socket.recv(1 << 16)
                header, packet = frame[:14], frame[14:]
                # The system announces to all hosts which groups it listens to.
                if int.from_bytes(header[12:], "big") == IPV4 and packet[16] < MULTICAST:
                    begin = 4 * (packet[0] & 15)
                    port = int.from_bytes(packet[begin + 2 : begin + 4], "big")
                    self.seen.add((packet[9], port))

    def close(self):
        self._over.set()
        self.join()
        self._socket.close()


class EncryptionTest(tf.test.TestCase):
    def train(self, link):
        """The last line of each process, and the packets that a tap saw on their link."""
        with contextlib.ExitStack() as stack:
            hosts = network.up(self, PREFIX, "10.90.0", NUM_HOSTS, link)
            tap = Tap(f"{PREFIX}v0")
            stack.callback(tap.close)
            tap.start()
            config = json.dumps({"start_timeout": 100, "train": [{"num_steps": NUM_STEPS}]})
            addresses = hosts.addresses(network.PORT)
            started = []
            for i in range(NUM_HOSTS):
                before = hosts.on_host(i, [])
                started.append(processes.start(WORKER, addresses, i, [config], before=before))
            outputs = processes.outputs(started, TIMEOUT_SECONDS)
            self.assertEqual([p.returncode for p in started], [0] * NUM_HOSTS, outputs)
        return [output.splitlines()[-1] for output in outputs], tap.seen

    @pytest.mark.slow
    def test_only_wireguards_packets_are_seen_and_training_is_the_same(self):
        with contextlib.redirect_stdout(io.StringIO()):
            undisturbed = failing_worker.train(TernGradStrategy(NUM_HOSTS), num_steps=NUM_STEPS)
        trained, seen = self.train("none+wireguard")
        self.assertEqual(trained, [f"trained: {undisturbed}"] * NUM_HOSTS)
        self.assertEqual(seen, {(UDP, encrypted_links.PORT)})
        # The tap does see unencrypted packets.
        trained, seen = self.train("none")
        self.assertEqual(trained, [f"trained: {undisturbed}"] * NUM_HOSTS)
        self.assertIn((TCP, network.PORT), seen)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
