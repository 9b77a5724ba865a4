"""How `terngrad run` shows lines, and progress bars that rewrite a line."""

import io
import sys
import unittest

import pytest

from terngrad_tf.launcher.output.lines import read_lines


class Chunks(io.RawIOBase):
    """A stream whose reads each return one chunk."""

    def __init__(self, chunks):
        self._chunks = iter(chunks)

    def readable(self):
        return True

    def readinto(self, buffer):
        chunk = next(self._chunks, b"")
        buffer[: len(chunk)] = chunk
        return len(chunk)


def of_bytes(*chunks, progress_seconds=1e9):
    """Returns the lines of a stream of chunks."""
    pieces = [chunk[i : i + 4096] for chunk in chunks for i in range(0, len(chunk), 4096)]
    return list(read_lines(io.BufferedReader(Chunks(pieces)), progress_seconds))


class LinesTest(unittest.TestCase):
    def test_lines_do_not_depend_on_chunks(self):
        text = "one\n\n  two\r\nthree é\nlast".encode()
        wanted = ["one", "", "  two", "three é", "last"]
        for i in range(len(text)):
            self.assertEqual(of_bytes(text[:i], text[i:]), wanted)

    def test_only_the_last_state_of_a_progress_bar_is_shown(self):
        bar = b"".join(b"\b\b\r%d/180 ======" % i for i in range(181))
        self.assertEqual(
            of_bytes(b"Epoch 1\n", bar, b"\nEpoch 2\n"), ["Epoch 1", "180/180 ======", "Epoch 2"]
        )
        self.assertEqual(of_bytes(b"0 %\r50 %\r100 %\r\n"), ["100 %"])

    def test_progress_bar_is_shown_before_its_end(self):
        states = [b"\r%d %%" % i for i in range(5)]
        lines = of_bytes(*states, b"\n", progress_seconds=0)
        self.assertEqual(lines[-1], "4 %")
        self.assertEqual(lines, sorted(lines))
        many = of_bytes(b"".join(states) * 10_000, b"\n", progress_seconds=0)
        self.assertLess(len(many), 1000)

    def test_long_lines_are_cut(self):
        for end in (b"", b"\n"):
            lines = of_bytes(b"x" * 200_000 + end)
            self.assertEqual("".join(lines), "x" * 200_000)
            self.assertLess(max(map(len, lines)), 66_000)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
