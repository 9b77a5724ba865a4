"""Workers agree: at most one group of them goes on, and all hear a proposal."""

import sys
import unittest
from unittest import mock

import pytest

from terngrad_tf.distribute.cluster import greetings
from terngrad_tf.distribute.cluster.introductions import Introduction, Proposal, decode
from terngrad_tf.distribute.cluster.membership import Generation, MembersFile, SavedState
from terngrad_tf.distribute.communication.peers import Tasks
from terngrad_tf.distribute.elastic import join
from tests import runs
from tests.distribute import processes

ADDRESSES = ("a:1", "b:1", "c:1")


class AgreementTest(unittest.TestCase):
    def setUp(self):
        folder = runs.class_folder(type(self)) / self.id()
        names = tuple(f"worker {index}" for index in range(3))
        state = SavedState(1, 10)
        self.files = [MembersFile(folder / str(i), i, ADDRESSES) for i in range(3)]
        for file in self.files:
            file.agree(Generation(1, (0, 1, 2), num_copies=1))
            file.begin()
        self.meetings = [
            join._Meeting(
                *(Tasks(names, ADDRESSES, i), self.files[i], state, "key", "", None, 1, 1, 0.0, 600)
            )
            for i in range(3)
        ]

    def look(self, index, present):
        """Lets a worker look while only some others are present."""
        told = {ADDRESSES[i]: self.meetings[i]._introduction() for i in present}
        names = list(told.values())
        heard = mock.Mock(**{"names.return_value": names, "latest_names.return_value": names})

        def greet(address, *_):
            return (told[address], None) if address in told else (None, "connection refused")

        with mock.patch.object(join.greetings, "greet", greet):
            return self.meetings[index]._look(heard)

    def test_a_proposal_without_an_answer_lets_no_minority_go_on(self):
        self.look(0, [1])
        self.assertEqual(self.files[0].generation.members, (0, 1))
        self.meetings[0]._settle_until = 0.0
        for _ in range(3):
            self.assertFalse(self.look(0, []))  # worker 1 stopped before it agreed
        self.assertEqual(self.files[0].generation.number, 2)
        # The others know of none, and are more than half.
        self.look(1, [2])
        self.assertTrue(self.look(2, [1]))
        self.assertEqual(self.files[2].generation.members, (1, 2))
        self.assertTrue(self.look(1, [2]))

    def test_workers_that_agree_know_the_last_generation_that_began(self):
        self.look(0, [1])
        self.look(1, [0])
        self.files[0].begin()  # worker 1 stops before it knows
        self.meetings[0]._proposal = None
        self.look(0, [1, 2])
        self.look(1, [0, 2])
        self.look(2, [0, 1])
        # Worker 0 may go on as half of the two that trained.
        self.look(1, [2])
        self.look(2, [1])
        self.assertEqual([file.generation.number for file in self.files], [3, 3, 3])
        self.assertEqual([file.begun.members for file in self.files], [(0, 1)] * 3)

    def test_a_worker_that_agreed_to_another_proposal_of_the_same_number_did_not_agree(self):
        # Workers 0 and 2 do not reach each other.
        self.meetings[2].state = SavedState(1, 11)
        self.look(0, [1])
        self.look(2, [1])
        self.assertEqual([self.files[i].generation.members for i in (0, 2)], [(0, 1), (2, 1)])
        self.assertTrue(self.look(1, [0, 2]))
        self.assertEqual(self.files[1].generation.members, (0, 1))
        self.assertFalse(self.look(2, [1]))
        self.assertTrue(self.look(0, [1]))

    def test_a_thousand_workers_hear_the_proposal(self):
        members = Generation(4, tuple(range(1000)), 1, SavedState(3, 10))
        proposal = Proposal(members, dict.fromkeys(range(1, 1000), "0123456789abcdef"))
        told = Introduction("key", 0, "run", members, SavedState(3, 10), proposal, "options")
        (port,) = processes.free_ports(1)
        with greetings.answering(port, told.encode):
            name, failure = greetings.greet(f"127.0.0.1:{port}", told.encode())
        self.assertIsNone(failure)
        self.assertEqual(decode(name), told)

    def test_a_generation_that_began_lets_its_half_go_on(self):
        self.look(0, [1])
        self.files[0].begin()
        self.meetings[0]._settle_until = 0.0
        self.look(0, [])
        self.look(0, [])
        self.assertEqual(self.files[0].generation.members, (0,))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
