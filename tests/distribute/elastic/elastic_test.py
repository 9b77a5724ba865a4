"""Workers of a cluster that come and go agree on its members."""

import concurrent.futures
import contextlib
import itertools
import os
import socket
import sys
import time
from unittest import mock

import pytest
import tensorflow as tf

from terngrad_tf.common import tokens
from terngrad_tf.distribute import cluster_from_hosts
from terngrad_tf.distribute.communication.peers import PeerError
from terngrad_tf.distribute.elastic import join
from tests import runs
from tests.distribute import processes

JOIN_SECONDS = 1.0
TIMEOUT_SECONDS = 120


class ElasticTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.root = runs.class_folder(type(self))
        self.ports = processes.free_ports(4)
        self.pool = self.enter_context(concurrent.futures.ThreadPoolExecutor(8))
        self.saved = {}

    def join(self, worker, num_workers=3, folder=None, **options):
        """A future of the membership of a worker that joins now."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports[:num_workers])
        options = {"join_timeout": JOIN_SECONDS, "start_timeout": 60, **options}
        return self.pool.submit(
            join.join_cluster,
            cluster_from_hosts(worker_hosts=hosts, task_id=worker),
            self.root / (folder or f"worker_{worker}"),
            lambda: self.saved.get(worker),
            **options,
        )

    def all_join(self, *workers, **options):
        futures = [self.join(worker, **options) for worker in workers]
        return [future.result(TIMEOUT_SECONDS) for future in futures]

    def assert_members(self, joined, members, number):
        for membership in joined:
            self.assertEqual((membership.members, membership.number), (members, number))
        places = [membership.cluster_resolver.task_id for membership in joined]
        self.assertCountEqual(places, range(len(members)))
        addresses = [f"127.0.0.1:{self.ports[index]}" for index in members]
        spec = joined[0].cluster_resolver.cluster_spec().as_dict()
        self.assertEqual(spec, {"worker": addresses})

    def save(self, memberships, step):
        for membership in memberships:
            if membership.saves:
                worker = membership.members[membership.cluster_resolver.task_id]
                self.saved[worker] = step
                membership.saved(step)

    def await_waiting(self, membership):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not membership.waiting():
            self.assertLess(time.monotonic(), deadline)

    def await_listening(self, worker):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", self.ports[worker])).close()
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_all_listed_workers_begin_at_once(self):
        begin = time.monotonic()
        joined = self.all_join(0, 1, 2, join_timeout=TIMEOUT_SECONDS)
        self.assertLess(time.monotonic() - begin, TIMEOUT_SECONDS / 2)
        self.assert_members(joined, (0, 1, 2), 1)
        self.assertEqual([membership.saves for membership in joined], [True, False, False])
        self.assertEqual(
            joined[1].describe(), "workers 0, 1 and 2 of 3 train, as workers 0, 1 and 2"
        )

    def test_others_continue_without_a_lost_worker_and_take_it_in_again(self):
        joined = self.all_join(0, 1, 2)
        self.save(joined, 10)
        joined = self.all_join(0, 2)
        self.assert_members(joined, (0, 2), 2)
        self.assertEqual(joined[1].describe(), "workers 0 and 2 of 3 train, as workers 0 and 1")
        self.assertEqual(joined[0].waiting(), [])
        late = self.join(1)
        self.await_waiting(joined[0])
        self.assertEqual(joined[0].waiting(), [f"worker 1 (127.0.0.1:{self.ports[1]})"])
        self.assertFalse(late.done())
        self.save(joined, 20)
        joined = [*self.all_join(0, 2), late.result(TIMEOUT_SECONDS)]
        self.assert_members(joined, (0, 1, 2), 3)

    @pytest.mark.slow
    def test_workers_that_come_with_other_options_are_not_taken_in_and_learn_why(self):
        own = {"num_workers": 4, "options": {"rate": 0.1}}
        joined = self.all_join(0, 2, **own)
        late = [
            self.join(1, min_workers=2, **own),
            self.join(3, **{**own, "options": {"rate": 0.2}}),
        ]
        while not all(future.done() for future in late):
            self.assertEqual(joined[0].waiting(), [])
        for future in late:
            with self.assertRaisesRegex(PeerError, r"worker 0 .*was started differently"):
                future.result(TIMEOUT_SECONDS)
        right = self.join(1, **own)
        self.await_waiting(joined[0])
        joined = [*self.all_join(0, 2, **own), right.result(TIMEOUT_SECONDS)]
        self.assert_members(joined, (0, 1, 2), 2)

    @pytest.mark.slow
    def test_the_holder_of_a_copy_becomes_chief_if_the_chief_is_lost(self):
        joined = self.all_join(0, 1, 2, num_copies=1)
        self.assertEqual([membership.saves for membership in joined], [True, True, False])
        self.save(joined, 10)
        self.saved[0] = 30  # the latest copy is older
        joined = self.all_join(1, 2, num_copies=1)
        self.assert_members(joined, (1, 2), 2)
        self.save(joined, 20)
        # The run did not continue from worker 0's later steps.
        back = self.join(0, num_copies=1)
        self.await_waiting(joined[0])
        joined = [*self.all_join(1, 2, num_copies=1), back.result(TIMEOUT_SECONDS)]
        self.assert_members(joined, (1, 0, 2), 3)

    @pytest.mark.slow
    def test_no_worker_continues_if_only_the_lost_chief_saved(self):
        joined = self.all_join(0, 1, 2)
        self.save(joined, 10)
        futures = [self.join(worker, start_timeout=3) for worker in (1, 2)]
        errors = [str(future.exception(TIMEOUT_SECONDS)) for future in futures]
        # The other worker may be alone by then.
        self.assertTrue(
            any("has the latest checkpoint, which worker 0 has" in e for e in errors), errors
        )
        self.assert_members(self.all_join(0, 1), (0, 1), 2)

    def test_a_cluster_of_other_workers_continues_from_the_saved_state(self):
        joined = self.all_join(0, 1, 2, num_copies=1)
        self.save(joined, 10)
        # Worker 0 is gone for good; the others' list omits it.
        self.ports = [*self.ports[1:], self.ports[0]]
        self.saved = {0: 10}
        joined = [
            future.result(TIMEOUT_SECONDS)
            for future in [self.join(i, 2, f"worker_{i + 1}") for i in range(2)]
        ]
        self.assert_members(joined, (0, 1), 2)

    @pytest.mark.slow
    def test_too_few_do_not_begin(self):
        for workers, options in (((1,), {}), ((0, 1), {"min_workers": 3})):
            futures = [self.join(worker, start_timeout=2, **options) for worker in workers]
            for future in futures:
                with self.assertRaisesRegex(
                    PeerError, "^too few workers are present, [12] of 3: .*worker 2"
                ):
                    future.result(TIMEOUT_SECONDS)

    @pytest.mark.slow
    def test_one_of_two_continues_if_it_is_the_chief(self):
        for worker, continues in ((0, True), (1, False)):
            self.saved = {}
            self.ports = processes.free_ports(2)
            folders = {index: f"{worker}_{index}" for index in range(2)}
            both = [self.join(index, 2, folders[index]) for index in range(2)]
            joined = [future.result(TIMEOUT_SECONDS) for future in both]
            self.save(joined, 10)
            alone = self.join(worker, 2, folders[worker], start_timeout=2)
            if continues:
                membership = alone.result(TIMEOUT_SECONDS)
                self.assert_members([membership], (0,), 2)
                self.assertEqual(membership.describe(), "worker 0 of 2 trains alone, as worker 0")
            else:
                with self.assertRaises(PeerError):
                    alone.result(TIMEOUT_SECONDS)

    @pytest.mark.slow
    def test_workers_with_other_options_or_tokens_are_refused(self):
        for options, why in (
            ({"min_workers": 2}, "was started differently"),
            ({"token": "a secret of 16 or more"}, "token"),
        ):
            with mock.patch.object(join, "_WRONG_SECONDS", 2.0):
                futures = [self.join(0, start_timeout=4), self.join(1, start_timeout=4, **options)]
                for future in futures:
                    with self.assertRaisesRegex(PeerError, why):
                        future.result(TIMEOUT_SECONDS)

    def test_a_wrong_port_in_one_list_is_reported_to_both(self):
        # Worker 1 listens on a port that worker 0 does not try.
        first = self.join(0, 2)
        self.ports[1] = self.ports[3]
        with mock.patch.object(join, "_WRONG_SECONDS", 2.0):
            for future in [first, self.join(1, 2)]:
                with self.assertRaisesRegex(PeerError, "^worker [01] .*was started differently"):
                    future.result(TIMEOUT_SECONDS)

    @pytest.mark.slow
    def test_the_token_of_the_environment_counts(self):
        token = "a secret of 16 or more"
        with mock.patch.dict(os.environ, {tokens.VARIABLE: token}):
            futures = [self.join(0), self.join(1, token=token)]
            joined = [self.join(2).result(TIMEOUT_SECONDS)]
            joined += [future.result(TIMEOUT_SECONDS) for future in futures]
        self.assert_members(joined, (0, 1, 2), 1)
        with self.assertRaisesRegex(ValueError, "`token` must hold a token"):
            self.join(0, token="short").result(TIMEOUT_SECONDS)
        with (
            mock.patch.dict(os.environ, {tokens.VARIABLE: token}),
            mock.patch.object(join, "_WRONG_SECONDS", 1.0),
        ):
            armed = self.join(0, start_timeout=4)
            # It has read the variable once it listens.
            self.await_listening(0)
            os.environ.pop(tokens.VARIABLE)
            bare = self.join(1, start_timeout=4)
            for future in (armed, bare):
                with self.assertRaisesRegex(PeerError, "token"):
                    future.result(TIMEOUT_SECONDS)

    @pytest.mark.slow
    def test_workers_that_come_and_go_at_any_time_agree_on_each_generation(self):
        joined, end = [], time.monotonic() + 12

        def work(worker):
            for turn in itertools.count():
                if time.monotonic() > end:
                    return
                options = {"join_timeout": 0.5, "start_timeout": 2, "num_copies": 3}
                with contextlib.suppress(PeerError):
                    (membership,) = self.all_join(worker, num_workers=4, **options)
                    joined.append(membership)
                    # Trains for a moment.
                    time.sleep(0.3 * (1 + (worker + turn) % 3))
                    self.saved[worker] = 10 * membership.number
                    membership.saved(self.saved[worker])

        with concurrent.futures.ThreadPoolExecutor(4) as workers:
            for future in [workers.submit(work, worker) for worker in range(4)]:
                future.result(TIMEOUT_SECONDS)
        members_of = {}
        for membership in joined:
            members_of.setdefault(membership.number, set()).add(membership.members)
        self.assertGreater(len(members_of), 2)
        for members in members_of.values():
            self.assertLen(members, 1)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
