"""A terminal shows a table of the training and is restored; other outputs get plain lines."""

import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import sys
import termios
import unittest
from unittest import mock

import pytest

from terngrad_tf.training import log
from terngrad_tf.training.logs import screen

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def on_terminal(act, environment=None):
    """Calls a function in a new process on a terminal of 80 columns.

    Returns:
        Pair of exit status and terminal output.
    """
    process, terminal_end = pty.fork()
    if process == 0:
        status = 99
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            os.environ.update({"TERM": "xterm", "NO_COLOR": "", "CI": "", **(environment or {})})
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            act()
            status = 0
        except BaseException as error:
            status = 130 if isinstance(error, KeyboardInterrupt) else 1
        finally:
            sys.stdout.flush()
            os._exit(status)
    shown = b""
    with contextlib.suppress(OSError):  # raised at the end
        while data := os.read(terminal_end, 65536):
            shown += data
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal_end)
    return status, shown.decode()


def train(last_step=40, end=lambda: None):
    with screen.show() as shown:
        for name in ("ternary", "worker 1"):
            log.log(f"training {name} " + "with many words " * 8)
            with screen.show() as same:
                assert same is shown
                if shown is not None:
                    shown.begin(name, 64, 0, 40)
                    for step in range(1, last_step + 1):
                        shown.step(name, step, 1.0 / step, step / 80)
                    shown.note("worker 2", "waits 42 ms")
        end()


def lines_of(shown):
    """Returns the lines without cursor movements and colors."""
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", shown)]


class ScreenTest(unittest.TestCase):
    def test_a_terminal_shows_a_row_for_each_run_below_the_output(self):
        status, shown = on_terminal(train)
        self.assertEqual(status, 0, shown)
        lines = lines_of(shown)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertTrue(any(line.startswith("with many words") for line in lines), lines)
        (last,) = [n for n, line in enumerate(lines) if line.startswith(" run ")][-1:]
        rows = [line.split() for line in lines[last:] if "40/40" in line]
        self.assertEqual([row[-7:-3] for row in rows], [["40/40", "0.025", "50.0", "%"]] * 2)
        self.assertEqual([len(row[-1]) for row in rows], [screen.WIDTH] * 2)
        notes = [line for line in lines[last:] if line.startswith(" worker 2 ")]
        self.assertEqual([line.strip().split(maxsplit=2)[2] for line in notes], ["waits 42 ms"])
        self.assertGreater(shown.rfind(SHOW_CURSOR), shown.rfind(HIDE_CURSOR))

    def test_an_error_and_an_interruption_leave_the_table_and_the_cursor(self):
        def fail():
            raise ValueError("an error")

        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)

        for end, wanted in ((fail, 1), (interrupt, 130)):
            status, shown = on_terminal(lambda end=end: train(20, end))
            self.assertEqual(status, wanted, shown)
            self.assertIn("20/40", shown)
            self.assertGreater(shown.rfind(SHOW_CURSOR), shown.rfind(HIDE_CURSOR))

    def test_before_the_first_step_a_row_shows_that_the_step_is_built(self):
        row = screen.Row(64, 5, 40)
        steps, *_, last = row.cells()
        self.assertEqual(steps, "5/40")
        self.assertRegex(last, r"^building the step, \d+ s$")

    def test_other_outputs_and_settings_get_plain_lines(self):
        for environment in ({"TERM": "dumb"}, {"NO_COLOR": "1"}, {"CI": "true"}):
            status, shown = on_terminal(train, environment)
            self.assertEqual(status, 0, shown)
            self.assertNotIn("\x1b", shown)
            self.assertLessEqual(max(map(len, shown.splitlines())), 80)
        with contextlib.redirect_stdout(io.StringIO()) as out, mock.patch.dict(os.environ):
            os.environ["TERM"] = "xterm"
            train()
        self.assertEqual(len(out.getvalue().splitlines()), 2)

    def test_a_sparkline_falls_with_any_number_of_values(self):
        self.assertEqual(screen.sparkline([]), "")
        self.assertEqual(screen.sparkline([3.0, 3.0]), "▁▁")
        curve = screen.Curve()
        for step in range(10_000):
            curve.add(10_000.0 - step)
        line = screen.sparkline(curve.values)
        self.assertEqual(len(line), screen.WIDTH)
        self.assertEqual(list(line), sorted(line, reverse=True))
        self.assertEqual(line[0] + line[-1], "█▁")
        self.assertEqual(curve.last, 1.0)
        self.assertLess(len(curve.values), 8 * screen.WIDTH)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
