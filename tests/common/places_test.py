"""Histories of places show where processes diverge."""

import sys
import unittest

import pytest

from terngrad_tf.common.places import History, Places, Traced, first_difference


def history(places, skipped=0):
    return History(skipped, [(name, 1) for name in places])


class PlacesTest(unittest.TestCase):
    def test_a_history_counts_equal_places_and_forgets_the_oldest(self):
        places = Places()
        for name in "abbb":
            with places.at(name):
                pass
        self.assertEqual(places.history(), History(0, [("a", 1), ("b", 3)]))
        places.forget("b")
        places.forget("a")  # not the last place
        self.assertEqual(places.history().length, 3)
        for number in range(200):
            with places.at(str(number)):
                pass
        found = places.history()
        self.assertEqual(found.length, 203)
        self.assertEqual((found.at(202), found.at(0), found.at(203)), ("199", None, None))

    def test_a_process_waits_at_the_outermost_place_also_after_an_error(self):
        places = Places()
        self.assertEqual((places.waits_at, places.seconds_at()), (None, 0))
        with self.assertRaises(KeyError), places.at("fit"), places.at("exchange"):
            self.assertEqual(places.waits_at, "fit")
            self.assertGreater(places.seconds_at(), 0)
            raise KeyError
        self.assertEqual((places.waits_at, places.seconds_at()), ("fit", 0))
        with places.at("evaluate"):
            pass
        self.assertIsNone(places.waits_at)

    def test_places_in_functions_lie_between_places_in_python(self):
        places, noted = Places(), [Traced()]
        places.read_from(lambda: noted[0])
        with places.at("fit"):
            pass
        noted[0] = Traced(3, ["a", "a", "b"], 3)
        with places.at("evaluate"):
            self.assertEqual(places.waits_at, "evaluate")
        names = [("fit", 1), ("a", 2), ("b", 1), ("evaluate", 1)]
        self.assertEqual(places.history(), History(0, names))
        noted[0] = Traced(5, ["a", "b", "b", "b"], 4, is_waiting=True)
        self.assertEqual(places.waits_at, "b")
        self.assertGreater(places.seconds_at(), 0)
        self.assertEqual(places.history(), History(0, [*names, ("b", 2)]))
        noted[0] = Traced(5, ["a", "b", "b", "b"], 5)
        self.assertEqual((places.waits_at, places.seconds_at()), (None, 0))
        # The trace kept 4 of 10 new places.
        noted[0] = Traced(15, ["b", "b", "b", "c"], 14)
        self.assertEqual(places.history(), History(13, [("b", 3), ("c", 1)]))

    def test_processes_diverge_at_their_first_different_place(self):
        one = history("abbbc")
        for other, expected in (
            ("abbbc", None),
            ("abb", None),  # slower, but not different
            ("", None),
            ("abbbb", 4),
            ("abbc", 3),
            ("b", 0),
        ):
            self.assertEqual(first_difference([one, history(other)]), expected)
            self.assertEqual(first_difference([history(other), one, one]), expected)
            # A process that kept less of its history knows less.
            kept = history("bbc", skipped=2)
            late = None if expected is not None and expected < 2 else expected
            self.assertEqual(first_difference([kept, history(other)]), late)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
