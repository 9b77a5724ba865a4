"""Tests of which workers may continue after a loss, and of what they remember."""

import json
import pathlib
import sys

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from terngrad_tf.distribute.cluster.membership import Generation, MembersFile, SavedState
from tests import runs

WORKERS = 5
NAMES = ["a:1", "b:1", "c:1"]
GENERATIONS = st.builds(
    Generation,
    number=st.integers(0, 9),
    members=st.lists(st.integers(0, WORKERS - 1), min_size=1, unique=True).map(tuple),
    num_copies=st.integers(0, 2),
    start=st.none() | st.builds(SavedState, st.integers(0, 9), st.integers(0, 99)),
)


class GenerationTest(tf.test.TestCase):
    @hypothesis.given(GENERATIONS, st.sets(st.integers(0, WORKERS - 1)))
    def test_at_most_one_part_of_a_split_network_continues(self, generation, part):
        rest = set(range(WORKERS)) - part
        self.assertFalse(generation.may_continue(part) and generation.may_continue(rest))
        self.assertTrue(generation.may_continue(range(WORKERS)))

    @hypothesis.given(GENERATIONS, st.sets(st.integers(0, WORKERS - 1)))
    def test_the_chiefs_half_continues(self, generation, part):
        present = part & set(generation.members)
        if 2 * len(present) == len(generation.members):
            self.assertEqual(generation.may_continue(part), generation.members[0] in part)

    @hypothesis.given(
        GENERATIONS,
        st.dictionaries(
            st.integers(0, WORKERS - 1),
            st.none() | st.builds(SavedState, st.integers(0, 9), st.integers(0, 99)),
            min_size=1,
        ),
    )
    def test_the_worker_with_the_latest_state_becomes_chief(self, generation, states):
        order = generation.order(states)
        if order is None:
            self.assertNotIn(generation.members[0], states)
            return
        self.assertCountEqual(order, states)
        rank = {i: (-1, -1) if s is None else (s.generation, s.step) for i, s in states.items()}
        best = [index for index in states if rank[index] == max(rank.values())]
        self.assertIn(order[0], best)
        if generation.members[0] in best:
            self.assertEqual(order[0], generation.members[0])

    def test_no_worker_continues_without_the_latest_state(self):
        for copies, start, states, expected in (
            # Only the chief, worker 2, saved in this generation.
            (0, None, {0: None, 1: None}, None),
            (0, SavedState(3, 50), {0: None, 1: SavedState(3, 40)}, None),
            (0, SavedState(3, 50), {0: None, 1: SavedState(2, 90)}, None),
            # Worker 0 holds a copy, whatever its present state.
            (1, None, {0: None, 1: None}, (0, 1)),
            (1, SavedState(3, 50), {0: None, 1: None}, None),  # not yet
            (1, SavedState(3, 50), {0: SavedState(4, 70), 1: SavedState(3, 90)}, (0, 1)),
            # A folder shared with the chief.
            (0, SavedState(3, 50), {0: SavedState(4, 70), 1: SavedState(4, 70)}, (0, 1)),
            (0, SavedState(3, 50), {0: None, 1: SavedState(3, 50)}, (1, 0)),
        ):
            generation = Generation(4, (2, 0, 1), copies, start)
            self.assertEqual(generation.order(states), expected, (copies, start, states))


class MembersFileTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = runs.class_folder(type(self)) / "run"

    def test_a_worker_remembers_what_it_agreed_to_and_saved(self):
        file = MembersFile(self.folder, 1, NAMES)
        self.assertEqual(file.generation, Generation(0, (0, 1, 2)))
        self.assertIsNone(file.state(None))
        self.assertEqual(file.state(7), SavedState(0, 7))
        generation = Generation(4, (1, 2), 1, SavedState(3, 90))
        file.agree(generation)
        file.saved(100)
        again = MembersFile(self.folder, 1, NAMES)
        self.assertEqual(again.generation, generation)
        self.assertEqual(again.state(100), SavedState(4, 100))
        self.assertEqual(again.state(120), SavedState(4, 120))  # saving did not finish
        self.assertIsNone(again.state(None))

    def test_an_older_state_is_the_generations_own_if_the_newest_is_damaged(self):
        file = MembersFile(self.folder, 1, NAMES)
        file.agree(Generation(5, (1, 2), 0, SavedState(4, 80)))
        file.saved(110)
        self.assertEqual(file.state(100), SavedState(5, 100))
        self.assertEqual(file.state(80), SavedState(4, 80))
        self.assertEqual(file.state(70), SavedState(0, 70))
        # A later generation removes later states before it saves its first one.
        file.agree(Generation(6, (2, 1), 1, SavedState(5, 90)))
        self.assertEqual(file.state(100), SavedState(0, 100))

    def test_workers_that_share_a_folder_know_what_each_saved(self):
        files = [MembersFile(self.folder, index, NAMES[:2]) for index in range(2)]
        files[0].agree(Generation(1, (0, 1)))
        files[0].saved(50)
        files[1].agree(Generation(2, (1,), start=SavedState(1, 50)))
        self.assertEqual(files[1].state(50), SavedState(1, 50))
        files[1].saved(40)  # as if worker 0's newest file was damaged and removed by hand
        self.assertEqual(files[0].state(40), SavedState(2, 40))

    def test_damage_is_reported(self):
        file = MembersFile(self.folder, 1, NAMES)
        file.agree(Generation(4, (1, 2), 1, SavedState(3, 90)))
        (path,) = pathlib.Path(self.folder).iterdir()
        whole = json.loads(path.read_text())
        for change in (
            {"generation": None},
            {"saved": {"generation": 1}},
            {"saved": {"generation": 1, "step": -1}},
            *(
                {"generation": {**whole["generation"], name: value}}
                for name, value in (("members", []), ("members", [1, 1]), ("number", True))
            ),
        ):
            path.write_text(json.dumps({**whole, **change}))
            with self.assertRaisesRegex(ValueError, f"^{path} is damaged: "):
                MembersFile(self.folder, 1, NAMES)
        path.write_text(json.dumps({**whole, "workers": NAMES[:2]}))
        with self.assertRaisesRegex(ValueError, "it tells of worker 2 of 2"):
            MembersFile(self.folder, 1, NAMES)

    def test_a_different_cluster_keeps_only_the_saved_state(self):
        file = MembersFile(self.folder, 1, NAMES)
        file.agree(Generation(4, (1, 2)))
        file.saved(100)
        for workers in (NAMES[:2], [*NAMES[:2], "d:1"]):
            other = MembersFile(self.folder, 1, workers)
            self.assertEqual(other.generation, Generation(0, tuple(range(len(workers)))))
            self.assertEqual(other.state(100), SavedState(4, 100))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
