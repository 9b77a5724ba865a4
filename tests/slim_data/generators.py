"""Picklable generators of examples, also with failures of their processes."""

import os
import signal
import time

EXAMPLE_SIZE = 20


def example(number):
    """Returns an example that contains its number."""
    return f"{number:0{EXAMPLE_SIZE}d}".encode()


def numbered(start, stop):
    """Yields examples that contain their numbers."""
    yield from map(example, range(start, stop))


def up_to(end, start, stop):
    """Yields examples of a source whose size differs from the stated one."""
    del stop
    yield from map(example, range(start, end))


def killed_at(number, start, stop):
    """Yields numbered examples, and kills its process at one of them."""
    for i in range(start, stop):
        if i == number:
            os.kill(os.getpid(), signal.SIGKILL)
        yield example(i)


def failing_at(number, error, start, stop):
    """Yields numbered examples, and raises an error at one of them."""
    for i in range(start, stop):
        if i == number:
            raise error
        yield example(i)


def slow(seconds, start, stop):
    """Yields numbered examples with a pause before each."""
    for i in range(start, stop):
        time.sleep(seconds)
        yield example(i)
