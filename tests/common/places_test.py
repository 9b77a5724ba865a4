"""Where processes are apart follows from the places that each came to, in order."""

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
        places.forget("a")  # which is not the last
        self.assertEqual(places.history().length, 3)
        for number in range(200):
            with places.at(str(number)):
                pass
        told = places.history()
        self.assertEqual(told.length, 203)
        self.assertEqual((told.at(202), told.at(0), told.at(203)), ("199", None, None))

    def test_what_a_process_waits_at_is_the_outermost_place_also_after_an_error(self):
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

    def test_what_functions_noted_lies_between_what_python_notes(self):
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
        # Of 10 more it kept 4.
        noted[0] = Traced(15, ["b", "b", "b", "c"], 14)
        self.assertEqual(places.history(), History(13, [("b", 3), ("c", 1)]))

    def test_processes_are_apart_where_the_same_turn_has_two_names(self):
        one = history("abbbc")
        for other, expected in (
            ("abbbc", None),
            ("abb", None),  # it is slow
            ("", None),
            ("abbbb", 4),
            ("abbc", 3),
            ("b", 0),
        ):
            self.assertEqual(first_difference([one, history(other)]), expected)
            self.assertEqual(first_difference([history(other), one, one]), expected)
            # Who kept less knows less.
            kept = history("bbc", skipped=2)
            late = None if expected is not None and expected < 2 else expected
            self.assertEqual(first_difference([kept, history(other)]), late)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
