"""The coordinator loses machines that are silent, and only these, and waits for no terminal.

Machines must have different addresses.
"""

import io
import itertools
import signal
import sys
import threading
import time
import unittest
from unittest import mock

import pytest

from terngrad_tf.launcher import coordinator, machines
from terngrad_tf.launcher.coordinator import STATUS_NODE, STATUS_PEER, Coordinator, Plan
from terngrad_tf.launcher.hosts import Host
from terngrad_tf.launcher.nodes import LostError, Node
from terngrad_tf.launcher.output.logs import Output


class _Machine(Node):
    """A machine whose process ends after some seconds, without any other message."""

    def __init__(self, seconds):
        super().__init__(Host("far"), [2222])
        self._seconds = seconds

    def open(self, events):
        self._events = events

    def send(self, message):
        if "start" in message:
            end = (self, {"exit": [0, 0, ""]})
            timer = threading.Timer(self._seconds, self._events.put, [end])
            timer.daemon = True
            timer.start()

    def reaches(self, program):
        return False


def _run(seconds):
    plan = Plan(command=["true"], folder="/")
    return Coordinator(plan, [_Machine(seconds)], lambda *_: None, lambda _: None).run()


class SilenceTest(unittest.TestCase):
    def test_a_silent_machine_is_lost(self):
        with mock.patch.object(coordinator, "SILENCE_SECONDS", 1.0):
            status, line = _run(300)
        self.assertEqual((status, line), (STATUS_PEER, "lost far: no sign of life for 1 s"))

    def test_machines_outlive_the_time_for_which_the_launcher_was_stopped(self):
        # As after Ctrl-Z and `fg`: the clock went on, and no message was read.
        hours, clock = itertools.count(0, 3600), time.monotonic
        with mock.patch.object(coordinator.time, "monotonic", lambda: clock() + next(hours)):
            self.assertEqual(_run(2), (0, None))


class LostBetweenTest(unittest.TestCase):
    def test_a_machine_that_is_lost_before_the_start_is_no_silent_one(self):
        class Machine(_Machine):
            def open(self, events):
                super().open(events)
                events.put((self, {"lost": "far: the connection ended"}))

        plan = Plan(command=["true"], folder="/")
        with mock.patch.object(coordinator, "SILENCE_SECONDS", 1.0):
            result = Coordinator(plan, [Machine(300)], print, print).run()
        self.assertEqual(result, (STATUS_PEER, "lost far: the connection ended"))


class LateLineTest(unittest.TestCase):
    def test_a_line_of_an_earlier_start_which_had_more_processes_ends_nothing(self):
        class Machine(_Machine):
            def send(self, message):
                if "start" in message:
                    self._events.put((self, {"line": [1, 1, "late"]}))
                    self._events.put((self, {"line": [0, 1, "own"]}))
                super().send(message)

        lines = []

        def write(process, stream, text, shown):
            lines.append((process, stream, text))

        plan = Plan(command=["true"], folder="/")
        self.assertEqual(Coordinator(plan, [Machine(0.1)], write, print).run(), (0, None))
        self.assertEqual(lines, [("0", 1, "own")])


class WaitTest(unittest.TestCase):
    def test_a_signal_to_a_machine_that_waits_for_others_ends_all(self):
        class Here(_Machine):
            sent = ()

            def send(self, message):
                self.sent = (*self.sent, message)

        class There(_Machine):
            def open(self, events):
                while here not in run._open:
                    time.sleep(0.01)
                events.put((here, {"told": signal.SIGTERM}))
                time.sleep(300)

        here, plan = Here(0), Plan(command=["true"], folder="/")
        run = Coordinator(plan, [here, There(0)], print, print)
        status, line = run.run()
        self.assertEqual(status, 128 + signal.SIGTERM)
        self.assertEqual(here.sent, ({"over": [status, line]},))

    def test_a_long_wait_is_reported_once_also_if_each_try_is_short(self):
        reports, tries = [], iter(range(3))

        class There(_Machine):
            def open(self, events):
                if not reports or next(tries, None) is not None:
                    raise LostError("far: does not answer")

        class Here(_Machine):
            def address(self, slot):
                return "here:2222"

        plan = Plan(command=["true"], folder="/")
        run = Coordinator(plan, [Here(0), There(0)], print, reports.append)
        run._open = run._nodes[:1]
        with mock.patch.multiple(coordinator, _RETRY_SECONDS=0.1, _PATIENCE_SECONDS=0.1):
            run._open_all()
        self.assertEqual(reports, ["waiting for far"])

    def test_an_unexpected_error_of_a_connection_ends_the_run(self):
        class There(_Machine):
            def open(self, events):
                raise RuntimeError("can't start new thread")

        plan = Plan(command=["true"], folder="/")
        with self.assertRaisesRegex(RuntimeError, "can't start new thread"):
            Coordinator(plan, [There(0)], print, print).run()

    def test_a_machine_that_comes_back_when_processes_have_ended_restarts_nothing(self):
        class Here(_Machine):
            def __init__(self):
                super().__init__(0)
                self.slots = 2

            def address(self, slot):
                return f"here:{slot}"

            def send(self, message):
                if "start" in message:
                    self._events.put((self, {"exit": [0, 0, ""]}))
                    self._events.put((there, {"back": True}))
                    self._events.put((self, {"exit": [1, 0, ""]}))
                if "signal" in message:
                    raise AssertionError

        class There(_Machine):
            def open(self, events):
                raise LostError("far: does not answer")

        there, plan = There(0), Plan(command=["true"], folder="/", min_workers=1)
        reports = []
        result = Coordinator(plan, [Here(), there], print, reports.append).run()
        self.assertEqual(result, (0, None))
        self.assertEqual(reports, ["going on without: far: does not answer"])


class SameAddressTest(unittest.TestCase):
    def test_two_machines_of_one_name_are_refused(self):
        plan = Plan(command=["true"], folder="/")
        nodes = [_Machine(0.1), _Machine(0.1)]
        status, line = Coordinator(plan, nodes, lambda *_: None, lambda _: None).run()
        self.assertEqual(status, STATUS_NODE)
        self.assertRegex(line, "^two machines have the address far:2222 for the others; give each")


class _Terminal(io.StringIO):
    """A terminal that shows nothing until `goes_on` is set."""

    encoding = "utf-8"

    def __init__(self):
        super().__init__()
        self.goes_on = threading.Event()

    def write(self, text):
        self.goes_on.wait()
        return super().write(text)


class StalledTerminalTest(unittest.TestCase):
    def test_failures_end_all_and_a_process_that_writes_on_waits(self):
        script = 'if [ "$TERNGRAD_TF_TASK" = 0 ]; then yes; else echo bad luck >&2; exit 5; fi'
        plan = Plan(command=["sh", "-c", script], folder="/")
        terminal = _Terminal()
        with (
            mock.patch.multiple(sys, stdout=terminal, stderr=terminal),
            mock.patch.object(coordinator, "_SETTLE_SECONDS", 0.1),
            Output(None) as output,
        ):
            nodes = machines.on_this_machine(2)
            ended = Coordinator(plan, nodes, output.write, output.report).run()
            terminal.goes_on.set()
        self.assertEqual(ended, (5, "worker 1 on this machine ended with status 5: bad luck"))
        self.assertIn("[1] bad luck\n", terminal.getvalue())
        # `yes` writes millions of lines in a second.
        self.assertBetween(terminal.getvalue().count("[0] y\n"), 1, 50_000)

    def test_a_closed_stream_holds_up_nothing(self):
        shown = threading.Event()
        with mock.patch.object(sys, "stdout", None), Output(None) as output:
            output.write(0, 1, "a line", shown.set)
        self.assertTrue(shown.is_set())

    def assertBetween(self, number, least, most):
        self.assertTrue(least <= number <= most, number)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
