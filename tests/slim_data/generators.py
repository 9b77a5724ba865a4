"""Generators of examples that other processes can be given, and what befalls those processes."""

import os
import signal
import time

EXAMPLE_SIZE = 20


def example(number):
    """Returns bytes that tell their number."""
    return f"{number:0{EXAMPLE_SIZE}d}".encode()


def numbered(start, stop):
    """Yields examples that tell their numbers."""
    yield from map(example, range(start, stop))


def up_to(end, start, stop):
    """Yields examples to the end of a source that holds another number than was stated."""
    del stop
    yield from map(example, range(start, end))


def killed_at(number, start, stop):
    """Yields numbered examples, and kills its process in place of one of them."""
    for i in range(start, stop):
        if i == number:
            os.kill(os.getpid(), signal.SIGKILL)
        yield example(i)


def failing_at(number, error, start, stop):
    """Yields numbered examples, and raises in place of one of them."""
    for i in range(start, stop):
        if i == number:
            raise error
        yield example(i)


def slow(seconds, start, stop):
    """Yields numbered examples with a pause before each."""
    for i in range(start, stop):
        time.sleep(seconds)
        yield example(i)
