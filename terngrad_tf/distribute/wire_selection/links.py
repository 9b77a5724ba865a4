"""Speed of the links between processes."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.communication.notices import tell
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, ring_bytes

# In floats; no larger message follows one that takes much longer than the smallest.
_SIZES = (500, 4_000, 32_000, 256_000, 2_000_000)
_LONG_SECONDS, _LONG_SHARE = 0.07, 2.0
# Calls that should take longer are not repeated.
_REPEATED_SECONDS = 4.0
_REPEATS = 3
_TOLD_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Link:
    """Cost of a message between processes: `message_seconds + bytes * seconds_per_byte`.

    Bytes are received bytes, through TensorFlow's transport; a message goes to all processes.
    """

    seconds_per_byte: float
    message_seconds: float

    def __str__(self) -> str:
        rate = 8e-6 / self.seconds_per_byte
        if rate < 0.0995:
            return f"{1000 * rate:.3g} kbit/s"
        return f"{rate / 1000:.1f} Gbit/s" if rate >= 999.5 else f"{rate:.3g} Mbit/s"


def measure(processes: Any) -> Link:
    """Measures the links; all processes call it.

    It takes a second, ten or more between continents, and less than a minute at 1 kbit/s. The chief
    tells a long time.
    """
    of_slowest, begin = slowest(processes), time.perf_counter()

    def all_reduce(size, expected):
        # As float32 gradients travel.
        call = functools.partial(processes.all_reduce_sum, tf.zeros([size]))
        return of_slowest(_seconds(call, expected))

    message = of_slowest(_seconds(lambda: processes.all_gather(tf.zeros([1])), 0.0))
    # What the messages of an all-reduce take, whatever they carry.
    least = seconds = all_reduce(processes.size, message)
    # Only slow links take a second for almost nothing.
    expected = _REPEATED_SECONDS * least
    size = 0
    for size, larger in zip(_SIZES, (*_SIZES[1:], 0), strict=True):
        seconds = all_reduce(size, expected)
        if seconds - least > max(_LONG_SECONDS, _LONG_SHARE * least):
            break
        expected = least + larger / size * (seconds - least)
    received = ring_bytes(WORD_BYTES * size, processes.size)
    link = Link(max(seconds - least, 1e-9) / received, message)
    if processes.rank == 0 and (taken := time.perf_counter() - begin) > _TOLD_SECONDS:
        tell(f"links of {link}, {1e3 * message:.0f} ms a message: measuring took {taken:.0f} s")
    return link


def slowest(processes: Any) -> Callable[[float], float]:
    """Function that returns the largest of all processes' seconds."""
    number = tf.TensorSpec([1], tf.float32)
    agree = tf.function(processes.all_reduce_max, autograph=False).get_concrete_function(number)
    return lambda seconds: float(agree(tf.constant([seconds], tf.float32)).numpy()[0])


def _seconds(collective: Callable[[], tf.Tensor], expected: float) -> float:
    """Seconds of the quickest call, except the first; of the first if `expected` is long."""
    # TensorFlow may take a new function at an old one's address for a retraced one.
    run = tf.function(collective, autograph=False).get_concrete_function()
    taken = []
    for _ in range(_REPEATS if expected < _REPEATED_SECONDS else 1):
        start = time.perf_counter()
        run().numpy()
        taken.append(time.perf_counter() - start)
    return min(taken[1:] or taken)
