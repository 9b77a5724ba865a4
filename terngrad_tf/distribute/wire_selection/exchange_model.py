"""Expected seconds of an exchange of gradients in each mode."""

import dataclasses
import time
import typing
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, ring_bytes
from terngrad_tf.distribute.wire_selection import links
from terngrad_tf.quantization_options import QuantizationOptions

FLOAT, FOUR_BITS = "float32", "4 bits"
_NEARLY_AS_QUICK = 1.1
_Key = typing.TypeVar("_Key")
_FOUR_BITS_LEVELS = QuantizationOptions(grad_bits=4).levels
# Wires carry the job's codes; codes of 4 bits take the wire with the fewest bytes.
MODES = (FLOAT, FOUR_BITS, *(name for name in wires.WIRES if name != "auto"))


@dataclasses.dataclass(frozen=True)
class ExchangeModel:
    """Expected seconds of an exchange of a job's tensors.

    `nonzero_share` is the share of non-zero codes.
    """

    job: Any
    link: links.Link
    nonzero_share: float

    def seconds(self, mode: str, unit: float) -> float:
        """Returns the expected seconds of an exchange.

        Args:
            mode: one of `MODES`, or "auto" for the lossless wire with the fewest bytes.
            unit: seconds of a unit of arithmetic for one element.
        """
        of_mode, float_bytes = self._wires(mode)
        num_bytes = ring_bytes(float_bytes, self.job.num_members)
        messages = 2 if float_bytes else 0
        for wire in of_mode:
            num_bytes += wire.scale_bytes + WORD_BYTES * wire.expected_words(self.nonzero_share)
            messages += wire.num_scale_messages + wire.num_messages
        codec = unit * self._units(mode)
        return codec + messages * self.link.message_seconds + num_bytes * self.link.seconds_per_byte

    def unit_seconds(self, mode: str, codec_seconds: float) -> float:
        """Seconds of a unit: measured by the run if its mode was ternary."""
        units = self._units(mode)
        return codec_seconds / units if units else seconds_of_doubling()

    def _wires(self, mode):
        """The `Wire` of each bucket in a mode, and the bytes of gradients that stay float."""
        job = self.job
        if mode == FLOAT:
            return [], job.bytes_as_floats
        if not job.buckets:
            job = job.with_rounded_floats()
        name, levels = ("auto", _FOUR_BITS_LEVELS) if mode == FOUR_BITS else (mode, 1)
        return job.wires(name, levels), job.float_bytes

    def _units(self, mode):
        """What arithmetic takes, doubling a float32 in place being 1; see `Wire.work`."""
        local = self.job.num_local
        units = 0.0
        for wire in self._wires(mode)[0]:
            encode, decode = 2.3 * local, 1.2
            if self.job.rotated and mode not in wires.STREAMS:
                encode, decode = encode + 4.5 * local, decode + 4.0
            work = encode + wire.work(self.nonzero_share) + decode
            units += work * wire.num_gradient_elements
        return units


def option_of(mode: str) -> str:
    """Returns a mode as the strategy's option that selects it."""
    bits = {FLOAT: 32, FOUR_BITS: 4}
    return f"{mode} (grad_bits={bits[mode]})" if mode in bits else f'wire="{mode}"'


def nearly_quickest(seconds: Mapping[_Key, float]) -> _Key:
    """Returns the first key, the most exact first, whose seconds are at most 1.1 times the fewest.

    Example:
    >>> nearly_quickest({"exact": 1.05, "quickest": 1.0})
    'exact'
    """
    least = min(seconds.values())
    return next(key for key in seconds if seconds[key] <= _NEARLY_AS_QUICK * least)


def in_order(seconds: Mapping[str, float]) -> str:
    """Returns modes and their milliseconds, the quickest first: "ternary 44.3, ..."."""
    modes = sorted(seconds, key=seconds.__getitem__)
    return ", ".join(f"{mode} {in_milliseconds(seconds[mode])}" for mode in modes)


def in_milliseconds(seconds: float) -> str:
    """Returns seconds as text.

    Example:
    >>> in_milliseconds(0.0443), in_milliseconds(0.9996), in_milliseconds(1.234)
    ('44.3', '1,000', '1,234')
    """
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 999.5 else f"{milliseconds:.3g}"


def seconds_of_doubling(clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that `x * 2` takes for an element of a large array."""
    numbers = tf.zeros([2**22])
    double = tf.function(lambda x: x * 2, autograph=False)
    taken = []
    for _ in range(5):
        start = clock()
        double(numbers)
        taken.append(clock() - start)
    return min(taken) / 2**22
