"""Speed of the links between processes."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, ring_bytes

# In floats; no larger message follows one that takes `_LONG_SECONDS`.
_SIZES = (20_000, 70_000, 250_000, 900_000, 2_000_000)
_LONG_SECONDS = 0.08
_REPEATS = 3


@dataclasses.dataclass(frozen=True)
class Link:
    """Cost of a message between processes: `message_seconds + bytes * seconds_per_byte`.

    Bytes are received bytes, through TensorFlow's transport; a message goes to all processes.
    """

    seconds_per_byte: float
    message_seconds: float

    def __str__(self) -> str:
        rate = 8e-6 / self.seconds_per_byte
        return f"{rate / 1000:.1f} Gbit/s" if rate >= 999.5 else f"{rate:.3g} Mbit/s"


def measure(processes: Any) -> Link:
    """Measures the links, in some tenths of a second; all processes call it."""
    of_slowest = slowest(processes)
    message = of_slowest(_seconds(lambda: processes.all_gather(tf.zeros([1]))))
    size = seconds = 0
    for size in _SIZES:
        # As float32 gradients travel.
        own = _seconds(lambda n=size: processes.all_reduce_sum(tf.zeros([n])))
        seconds = of_slowest(own)
        if seconds > _LONG_SECONDS:
            break
    received = ring_bytes(WORD_BYTES * size, processes.size)
    return Link(max(seconds - message, 1e-9) / received, message)


def slowest(processes: Any) -> Callable[[float], float]:
    """Function that returns the largest of all processes' seconds."""
    number = tf.TensorSpec([1], tf.float32)
    agree = tf.function(processes.all_reduce_max, autograph=False).get_concrete_function(number)
    return lambda seconds: float(agree(tf.constant([seconds], tf.float32)).numpy()[0])


def _seconds(collective: Callable[[], tf.Tensor]) -> float:
    """Seconds of the quickest call, except the first."""
    # TensorFlow may take a new function at an old one's address for a retraced one.
    run = tf.function(collective, autograph=False).get_concrete_function()
    taken = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run().numpy()
        taken.append(time.perf_counter() - start)
    return min(taken[1:])
