"""Tests of how processes detect stragglers; `failures_test.py` runs real processes."""

import sys
import time

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from terngrad_tf.distribute import StragglerMonitor
from terngrad_tf.distribute.telemetry import stragglers


def names_of(count):
    return [f"worker {i}" for i in range(count)]


class DescribeTest(tf.test.TestCase):
    @settings(deadline=None, max_examples=100, derandomize=True)
    @given(
        st.lists(st.floats(0.0, 0.02), min_size=2, max_size=6),
        st.floats(0.3, 5.0),
        st.data(),
    )
    def test_one_slow_process_is_named_with_the_waits_of_all_others(self, jitter, wait, draw):
        slow = draw.draw(st.integers(0, len(jitter) - 1))
        syncs = [t + (0.0 if i == slow else wait) for i, t in enumerate(jitter)]
        line = stragglers.describe_waits(names_of(len(jitter)), syncs, 1.0)
        who, _, waits = line.partition(": ")
        self.assertEqual(who, f"the others wait for worker {slow}")
        for index, sync in enumerate(syncs):
            expected = f"worker {index} {1e3 * (sync - syncs[slow]):.0f} ms"
            (self.assertIn if index != slow else self.assertNotIn)(f"worker {index} ", waits)
            if index != slow and syncs[slow] == min(syncs):
                self.assertIn(expected, waits)

    @settings(deadline=None, max_examples=50, derandomize=True)
    @given(st.floats(0.0, 100.0), st.lists(st.floats(0.0, 0.19), min_size=1, max_size=6))
    def test_balanced_waits_are_not_reported_however_long_an_exchange_takes(self, exchange, jitter):
        syncs = [exchange + t for t in jitter]
        self.assertIsNone(stragglers.describe_waits(names_of(len(jitter)), syncs, 1.0))

    def test_several_slow_processes_are_reported_together(self):
        self.assertEqual(
            stragglers.describe_waits(names_of(4), [0.5, 0.1, 0.52, 0.11], 0.9),
            "the others wait for worker 1, worker 3: worker 0 400 ms, worker 2 420 ms"
            " of the 900 ms of a step",
        )


class SyncTimerTest(tf.test.TestCase):
    def test_sync_points_are_timed_from_input_to_output(self):
        timer = stragglers.SyncTimer("CPU:0")
        slept = {"inside": 0.0, "outside": 0.0}

        def late(value, where, seconds):
            def wait(value):
                # Uses the timer's clock, which may be set meanwhile.
                began = time.time()
                time.sleep(seconds)
                slept[where] += time.time() - began
                return value

            return tf.ensure_shape(tf.py_function(wait, [value], tf.float32), [])

        @tf.function
        def step():
            before = late(tf.constant(1.0), "outside", 0.3)
            inside = timer.measure([before], lambda: late(before, "inside", 0.1))
            return late(inside, "outside", 0.3)

        began = time.time()
        for _ in range(2):
            step()
        elapsed = time.time() - began
        seconds = timer.take()
        # A thread may read the clock late, after another's sleep has begun.
        self.assertBetween(seconds, slept["inside"] - 0.05, elapsed - slept["outside"] + 0.05)
        self.assertEqual(timer.take(), 0.0)


class StragglerMonitorTest(tf.test.TestCase):
    def test_wrong_interval_is_refused(self):
        for freq in (0, -1, 1.5, True):
            with self.assertRaisesRegex(ValueError, "`freq` must be a positive integer. Rec"):
                StragglerMonitor(freq)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
