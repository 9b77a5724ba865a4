"""Hostile inputs for parsers: a few in every test run, many with `--fuzz-seconds`.

    pytest tests/fuzz --fuzz-seconds 600     # for each fuzzer

A fuzzer is a test that calls `FuzzTest.fuzz`. pytest's summary shows the number of inputs.
"""

import contextlib
import faulthandler
import random
import resource
import signal
import time
import unittest

import hypothesis
import pytest
from hypothesis import strategies as st

NUM_CASES = 50
# An input that takes longer, or more memory, has found a loop or a bomb.
MAX_SECONDS = 20
MAX_BYTES = 2**30
_ROUND = 500


class FuzzTest(unittest.TestCase):
    """Base of the fuzzers."""

    @pytest.fixture(autouse=True)
    def _take_options(self, request):
        self._seconds = request.config.getoption("--fuzz-seconds")
        self._report = request.node.user_properties

    def fuzz(self, what, inputs, check, num_cases=NUM_CASES):
        """Gives inputs to a check until time is up; without `--fuzz-seconds`, always the same few.

        Args:
            what: str, name of the tested inputs, for the summary.
            inputs: hypothesis strategy.
            check: function of an input, which fails if the input is treated wrongly. It may take
                `MAX_SECONDS` and `MAX_BYTES`.
            num_cases: number of inputs without `--fuzz-seconds`.
        """
        count = 0
        end = None

        def counted(value):
            nonlocal count
            if end is not None and time.monotonic() > end:
                return
            count += 1
            with limited():
                check(value)

        def run(**options):
            settings = hypothesis.settings(
                **options,
                database=None,
                deadline=None,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            return settings(hypothesis.given(inputs)(lambda value: counted(value)))

        try:
            run(max_examples=num_cases, derandomize=True)()
            end = time.monotonic() + self._seconds
            while time.monotonic() < end:
                hypothesis.seed(random.getrandbits(64))(run(max_examples=_ROUND))()
        finally:
            self._report.append(("fuzz", (what, count)))

    def check_of(self, path, read):
        """Returns a check for `fuzz`: bytes in `path` are read, or refused by a clear error.

        Args:
            path: `pathlib.Path`, which the error must name.
            read: function of the path.
        """
        from terngrad_tf.bin.common import program

        def check(content):
            path.write_bytes(content)
            try:
                read(path)
            except ValueError as error:
                self.assert_clear(program.one_line(error), str(path))

        return check

    def assert_clear(self, error, *parts):
        """Asserts that an error is one short, printable line that contains the parts."""
        line = str(error)
        self.assertTrue(line.isprintable(), ascii(line))
        self.assertLessEqual(len(line), 1000)
        for part in parts:
            self.assertIn(part, line)


@contextlib.contextmanager
def limited(seconds=MAX_SECONDS, num_bytes=MAX_BYTES):
    """Fails if the block takes too long, or makes the process grow too much.

    Code that ignores the alarm ends with the process, after a traceback. The limit for this is 15
    times as long, since a machine that stalls for a minute is no fault of the code.
    """

    def ring(*_):
        raise AssertionError(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    faulthandler.dump_traceback_later(15 * seconds, exit=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    most = peak_memory()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)
    grown = peak_memory() - most
    if grown > num_bytes:
        raise AssertionError(f"takes {grown} bytes of memory")


def peak_memory():
    """Returns the peak memory of this process in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


_EDITS = ("set", "flip", "cut", "remove", "repeat", "insert", "swap", "number", "text", "splice")
_BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF, 0x0A, 0x2F, 0x2E, 0x30, 0x39, 0x3C, 0x26, 0x25)
_NUMBERS = (0, 1, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    b"\0",
    b"../",
    b"/etc/passwd",
    b"\x1b[2J",
    b"\r\n",
    b"9" * 400,
    b"1e400",
    b"nan",
    b"-1",
    b"[" * 3000,
    b"\xff\xfe",
    "\u202e".encode(),
    b" " * 70,
)


def mutated(seeds, max_edits=6):
    """Returns a strategy of bytes that are one of `seeds`, damaged at a few places.

    Args:
        seeds: list of bytes, valid inputs.
        max_edits: int, maximum number of places.
    """
    # Each edit has its own random number, so hypothesis can shrink a failure to the edits it needs.
    edits = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=max_edits)
    return st.builds(_edited, st.sampled_from(seeds), edits, st.just(seeds))


def _edited(data, edits, seeds):
    data = bytearray(data)
    for edit in edits:
        _edit(data, random.Random(edit), seeds)
    return bytes(data)


def _edit(data, draw, seeds):
    edit = draw.choice(_EDITS)
    # In most formats the first bytes decide what follows.
    at = draw.randint(0, min(len(data), draw.choice((2**6, 2**9, 2**62))))
    size = draw.randint(1, 6) ** 4
    if edit == "set":
        data[at : at + 1] = bytes([draw.choice(_BYTES)])
    elif edit == "flip":
        data[at : at + 1] = bytes(byte ^ 1 << draw.randrange(8) for byte in data[at : at + 1])
    elif edit == "cut":
        del data[at:]
    elif edit == "remove":
        del data[at : at + size]
    elif edit == "repeat":
        data[at:at] = data[at : at + size] * draw.choice((1, 2, 1000))
    elif edit == "insert":
        data[at:at] = draw.randbytes(draw.randint(1, 40))
    elif edit == "swap":
        data[at : at + 2 * size] = data[at + size : at + 2 * size] + data[at : at + size]
    elif edit == "number":
        width = draw.choice((2, 4, 8))
        number = draw.choice(_NUMBERS) % 2 ** (8 * width)
        data[at : at + width] = number.to_bytes(width, draw.choice(("little", "big")))
    elif edit == "text":
        text = draw.choice(_TEXTS)
        data[at : at + draw.choice((0, len(text)))] = text
    elif edit == "splice":
        other = draw.choice(seeds)
        data[at:] = other[draw.randint(0, len(other)) :]
