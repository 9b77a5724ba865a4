"""Tests of how processes find each other before TensorFlow starts, over sockets on loopback."""

import concurrent.futures
import socket
import sys
import time
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.distribute import peers, rendezvous
from tests.distribute import processes

HOSTS = ["127.0.0.1"] + ["[::1]"] * socket.has_dualstack_ipv6()


def wait(addresses, index, timeout=30, token=None):
    """What a process of a cluster does first; returns why it fails, None where it does not."""
    names = tuple(f"worker {number}" for number in range(len(addresses)))
    try:
        rendezvous.wait_for_peers(peers.Tasks(names, tuple(addresses), index), timeout, token)
    except peers.PeerError as error:
        return str(error)
    return None


def listen(address):
    """A server that says nothing."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), int(port)), family=family)


class RendezvousTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.addresses = [f"127.0.0.1:{port}" for port in processes.free_ports(3)]
        self.pool = concurrent.futures.ThreadPoolExecutor()
        self.addCleanup(self.pool.shutdown)

    def wait_all(self, *calls):
        """The results of `wait_for_peers` with these arguments, at once."""
        return [one.result() for one in [self.pool.submit(wait, *call) for call in calls]]

    def test_hosts_meet_however_late_over_both_versions_of_ip(self):
        for host in HOSTS:
            addresses = [f"{host}:{port}" for port in processes.free_ports(3)]
            others = [self.pool.submit(wait, addresses, index) for index in (0, 2)]
            time.sleep(1)
            self.assertFalse(any(other.done() for other in others))
            self.assertIsNone(wait(addresses, 1))
            self.assertEqual([other.result() for other in others], [None, None])
            # The ports are free for TensorFlow.
            for address in addresses:
                listen(address).close()

    def test_a_process_that_does_not_come_is_named_while_others_wait_and_at_the_end(self):
        missing = (
            f"worker 1 ({self.addresses[1]}: connection refused)"
            "; if it was started, TF_CONFIG may not be set there"
        )
        with (
            mock.patch.object(peers, "_FIRST_REPORT_SECONDS", 0.1),
            self.assertLogs("terngrad_tf.distribute.peers", "WARNING") as logs,
        ):
            error = wait(self.addresses[:2], 0, 1.5)
        self.assertEqual(error, f"not all processes started in time; missing: {missing}")
        (line,) = logs.output
        self.assertEndsWith(line, f"waiting for {missing}")

    def test_another_program_on_a_processes_port_is_told_to_both_sides(self):
        addresses = self.addresses[:2]
        with listen(addresses[0]):
            first, second = self.wait_all((addresses, 0), (addresses, 1, 3))
        self.assertStartsWith(first, f"worker 0 ({addresses[0]}) cannot listen on its port: is it")
        self.assertEqual(
            second,
            "not all processes started in time; missing:"
            f" worker 0 ({addresses[0]}: another program answers there)",
        )

    def test_processes_meet_with_the_same_token_and_name_who_has_another_or_none(self):
        addresses = self.addresses[:2]
        one, two = "one token of a team", "another token of it"
        self.assertEqual(
            self.wait_all((addresses, 0, 30, one), (addresses, 1, 30, one)), [None, None]
        )
        for tokens, whys in (
            ((one, two), ("has another token", "has another token")),
            (
                (one, None),
                (
                    "has no token, which this process has",
                    "has a token, which this process has not (TERNGRAD_TF_TOKEN)",
                ),
            ),
        ):
            errors = self.wait_all(*((addresses, i, 30, tokens[i]) for i in (0, 1)))
            for other, (error, why) in enumerate(zip(errors, whys, strict=True)):
                other = 1 - other
                self.assertEqual(
                    error,
                    f"worker {other} ({addresses[other]}) {why}: all processes of a cluster need"
                    " the same token",
                )

    def test_a_port_that_needs_privileges_is_told(self):
        with mock.patch.object(
            socket.socket, "bind", side_effect=PermissionError(13, "Permission denied")
        ):
            error = wait(["127.0.0.1:22", self.addresses[1]], 0)
        self.assertEqual(
            error, "worker 0 (127.0.0.1:22) cannot listen on its port: Permission denied"
        )

    def test_a_process_that_reaches_another_in_vain_is_told(self):
        zero, one, dead = self.addresses
        first, second = self.wait_all(([zero, one], 0, 3), ([dead, one], 1, 4))
        self.assertStartsWith(
            first, f"not all processes started in time; missing: worker 1 ({one}: has"
        )
        self.assertIn(f"has not reached worker 0 ({zero})", first)
        self.assertIn(f"worker 0 ({dead}: connection refused)", second)

    @pytest.mark.slow
    def test_an_index_given_twice_and_lists_of_other_lengths_are_told_on_all(self):
        zero, one, two = self.addresses
        rule = "all need one list of workers, and each the index of its own address in it"
        with mock.patch.object(rendezvous, "_WRONG_SECONDS", 8.0):
            # The second machine was started as worker 0, too; here it has another port.
            (error, _) = self.wait_all(([zero, one], 0), ([one, two], 0, 6))
            self.assertEqual(
                error,
                f'this process is worker 0 of 2, but worker 1 ({one}) says "worker 0 of 2": {rule}',
            )
        errors = self.wait_all(([zero, one, two], 0), ([zero, one], 1), ([zero, one, two], 2))
        for index, error in ((0, errors[0]), (2, errors[2])):
            self.assertEqual(
                error,
                f"this process is worker {index} of 3, but"
                f' worker 1 ({one}) says "worker 1 of 2": {rule}',
            )
        self.assertEqual(
            errors[1],
            f'this process is worker 1 of 2, but worker 0 ({zero}) says "worker 0 of 3": {rule}',
        )


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
