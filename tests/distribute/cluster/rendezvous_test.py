"""Tests of how processes find each other before TensorFlow starts, over sockets on loopback."""

import concurrent.futures
import functools
import socket
import sys
import time
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.distribute.cluster import rendezvous, worker_lists
from terngrad_tf.distribute.communication import peers
from tests.distribute import processes

RULE = "all processes need the same list of workers"
HOSTS = ["127.0.0.1"] + ["[::1]"] * socket.has_dualstack_ipv6()


def wait(addresses, index, timeout=60, token=None, **options):
    """Waits for all peers; returns the error, or None."""
    names = tuple(f"worker {number}" for number in range(len(addresses)))
    try:
        tasks = peers.Tasks(names, tuple(addresses), index)
        rendezvous.wait_for_peers(tasks, timeout, token, **options)
    except peers.PeerError as error:
        return str(error)
    return None


def listen(address):
    """A server that sends no data."""
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
        """Calls `wait` with each of these arguments at once; returns the results."""
        return [one.result() for one in [self.pool.submit(wait, *call) for call in calls]]

    @pytest.mark.slow
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

    def test_a_missing_process_is_named_while_others_wait_and_at_the_end(self):
        missing = (
            f"worker 1 ({self.addresses[1]}: connection refused)"
            "; if it was started, TF_CONFIG may not be set there"
        )
        with (
            mock.patch.object(peers, "_FIRST_REPORT_SECONDS", 0.1),
            self.assertLogs("terngrad_tf.distribute.communication.peers", "WARNING") as logs,
        ):
            error = wait(self.addresses[:2], 0, 1.5)
        self.assertEqual(error, f"not all processes started in time; missing: {missing}")
        (line,) = logs.output
        self.assertEndsWith(line, f"waiting for {missing}")

    @pytest.mark.slow
    def test_another_program_on_a_processes_port_is_reported_to_both_sides(self):
        addresses = self.addresses[:2]
        with listen(addresses[0]):
            first, second = self.wait_all((addresses, 0), (addresses, 1, 3))
        self.assertStartsWith(first, f"worker 0 ({addresses[0]}) cannot listen on its port: is it")
        self.assertEqual(
            second,
            "not all processes started in time; missing:"
            f" worker 0 ({addresses[0]}: another program answers there)",
        )

    def test_processes_with_the_same_token_meet_and_name_others(self):
        addresses = self.addresses[:2]
        one, two = "one token of a team", "another token of it"
        self.assertEqual(
            self.wait_all((addresses, 0, 30, one), (addresses, 1, 30, one)), [None, None]
        )
        rule = "all processes of a cluster need the same token"
        with mock.patch.object(rendezvous, "_WRONG_SECONDS", 2.0):
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
                errors = self.wait_all(*((addresses, i, 5, tokens[i]) for i in (0, 1)))
                for index, (error, why) in enumerate(zip(errors, whys, strict=True)):
                    other = 1 - index
                    who = f"worker {other} ({addresses[other]}"
                    # Only a process without a token trusts any answer.
                    if tokens[index] is None:
                        self.assertEqual(error, f"{who}) {why}: {rule}")
                    else:
                        begin = f"not all processes started in time; missing: {who}: "
                        self.assertStartsWith(error, begin)
                        self.assertEndsWith(error, f"{why}: {rule})")

    def test_a_port_that_needs_privileges_is_reported(self):
        with mock.patch.object(
            socket.socket, "bind", side_effect=PermissionError(13, "Permission denied")
        ):
            error = wait(["127.0.0.1:22", self.addresses[1]], 0)
        self.assertEqual(
            error, "worker 0 (127.0.0.1:22) cannot listen on its port: Permission denied"
        )

    @pytest.mark.slow
    def test_a_process_that_reaches_another_in_vain_is_reported(self):
        zero, one, dead = self.addresses
        first, second = self.wait_all(([zero, one], 0, 3), ([dead, one], 1, 4))
        differs = f"differs from that of this process, worker 0: worker 0 is '{dead}' there and"
        self.assertEqual(first, f"the list of workers of worker 1 {differs} '{zero}' here; {RULE}")
        self.assertStartsWith(second, "the list of workers of worker 0 differs from that of this")

    def test_processes_that_know_a_host_by_several_names_meet(self):
        zero, one, two = self.addresses
        as_named = [address.replace("127.0.0.1", "localhost") for address in self.addresses]
        errors = self.wait_all(
            ([zero, as_named[1], two], 0), ([as_named[0], one, two], 1), (as_named, 2)
        )
        self.assertEqual(errors, [None] * 3)
        # Elastic workers know them by one name: another list is that of other members.
        wait_as_members = functools.partial(wait, timeout=1, same_lists=True)
        calls = ([zero, one], 0), ([as_named[0], one], 1)
        futures = [self.pool.submit(wait_as_members, *call) for call in calls]
        for future in futures:
            self.assertStartsWith(future.result(), "the list of workers of worker")

    @pytest.mark.slow
    def test_an_index_given_twice_is_reported(self):
        zero, one, two = self.addresses
        with mock.patch.object(rendezvous, "_WRONG_SECONDS", 2.0):
            # The second machine was also started as worker 0; on this host it has another port.
            error, _ = self.wait_all(([zero, one], 0), ([one, two], 0, 4))
            self.assertEqual(
                error,
                f"the list of workers of worker 1 ({one}) differs from that of this process, worker"
                f" 0: worker 0 is '{one}' there and '{zero}' here, and worker 1 is '{two}' there"
                f" and '{one}' here; {RULE}",
            )
        own = peers.Tasks(("worker 0", "worker 1"), (zero, one), 0)
        told = worker_lists.place_of(own, 0)
        self.assertEqual(
            worker_lists.difference(own, own.describe(1), told),
            f'this process is worker 0 of 2, but worker 1 ({one}) says "worker 0 of 2": each'
            " process needs the index of its own address in the list of workers",
        )

    @pytest.mark.slow
    def test_a_wrong_port_in_one_list_is_reported_to_all_that_meet_its_process(self):
        zero, one, two = self.addresses
        (wrong,) = (f"127.0.0.1:{port}" for port in processes.free_ports(1))
        for token in (None, "a secret of 16 or more"):
            with mock.patch.object(rendezvous, "_WRONG_SECONDS", 2.0):
                # Worker 1 listens on a port that the others do not try.
                errors = self.wait_all(
                    ([zero, one, two], 0, 60, token),
                    ([zero, wrong, two], 1, 60, token),
                    ([zero, one, two], 2, 60, token),
                )
            for index in (0, 2):
                self.assertEqual(
                    errors[index],
                    "the list of workers of worker 1 differs from that of this process, worker"
                    f" {index}: worker 1 is '{wrong}' there and '{one}' here; {RULE}",
                )
            self.assertStartsWith(
                errors[1],
                "the list of workers of worker 0 differs from that of this process, worker 1:"
                f" worker 1 is '{one}' there and '{wrong}' here; {RULE}",
            )

    def test_lists_of_different_lengths_are_reported(self):
        zero, one, two = self.addresses
        with mock.patch.object(rendezvous, "_WRONG_SECONDS", 2.0):
            errors = self.wait_all(([zero, one, two], 0), ([zero, one], 1), ([zero, one, two], 2))
        for index, error in ((0, errors[0]), (2, errors[2])):
            self.assertEqual(
                error,
                f"the list of workers of worker 1 ({one}) differs from that of this process,"
                f" worker {index}: 2 workers there and 3 here, and '{two}' is here alone; {RULE}",
            )
        self.assertRegex(
            errors[1],
            rf"^the list of workers of worker [02] \(.*\) differs from that of this process, worker"
            rf" 1: 3 workers there and 2 here, and '{two}' is there alone; {RULE}$",
        )

    @pytest.mark.slow
    def test_a_wrongly_started_process_may_start_again_in_time(self):
        addresses = self.addresses[:2]
        with mock.patch.object(rendezvous, "_WRONG_SECONDS", 60.0):
            first = self.pool.submit(wait, addresses, 0, 120)
            wrong = wait([addresses[0], addresses[1], self.addresses[2]], 1, 2)
            self.assertIn("2 workers there and 3 here", wrong)
            self.assertIsNone(wait(addresses, 1, 120))
            self.assertIsNone(first.result())

    def test_long_lists_are_compared(self):
        names = tuple(f"worker {index}" for index in range(1000))
        one, two = (
            peers.Tasks(names, tuple(f"{host}{index}:2222" for index in range(1000)), 0)
            for host in ("first", "other")
        )
        place = worker_lists.place_of(one, 7)
        self.assertLess(len(str(place)), 200)
        self.assertEqual(worker_lists.parse(str(place)), place)
        self.assertNotEqual(place, worker_lists.place_of(two, 7))
        self.assertEqual(
            worker_lists.difference(two, "worker 7", place),
            "the list of workers of worker 7 differs from that of this process, worker 0; " + RULE,
        )

    def test_lines_are_short_whatever_others_say(self):
        tasks = peers.Tasks(("worker 0", "worker 1"), tuple(self.addresses[:2]), 0)
        for addresses in ("x" * 3900, ",".join(["a:1"] * 900)):
            told = worker_lists.parse(f"worker 1 of 2 in {addresses}")
            self.assertLess(len(worker_lists.difference(tasks, "worker 1", told)), 900)
        for text in ("worker 0 of 2", "worker 0 of 2 in a b", "", "w" * 30 + " 0 of 2 in a"):
            self.assertIsNone(worker_lists.parse(text))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
