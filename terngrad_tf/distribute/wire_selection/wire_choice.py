"""Choice of the wire for `wire="auto"`."""

import dataclasses
import logging
import time
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.plan import Job
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.wire_selection import links
from terngrad_tf.distribute.wire_selection.exchange_model import (
    ExchangeModel,
    in_order,
    seconds_of_doubling,
)
from terngrad_tf.distribute.wire_selection.wire_trial import WireTrial

# Least gain over the usual wire.
_NOTICED = 0.1
# A few kilobytes, for which wires hardly differ.
MIN_ELEMENTS = 2**16
# Sparsest codes in trials, as a share of the densest.
_SPARSEST = 0.25
# Including the usual one.
_MAX_TRIED = 3
# Densest codes measured on images: mean|g| / std(g), which `clip_factor` divides; and the share of
# non-zero codes without clipping.
_MEAN_OF_STD = 0.5
_UNCLIPPED_NONZERO_SHARE = 0.07

_logger = logging.getLogger(__name__)


class WireChoice:
    """Chooses the wire of a strategy's gradients.

    "auto" usually takes the lossless wire of known size with the fewest bytes. If many codes travel
    between processes, links and processors are measured once, before the first step, and another
    lossless wire is taken if `ExchangeModel` expects a gain of a tenth.

    The model assumes the densest codes ever measured, to choose no streams that might be slower. A
    `WireTrial` tries the wires that would gain a tenth with a fourth of these codes.

    All processes take the same wire: `handshake.compare_models` compared the gradients, and the
    slowest process's measurements count.

    Args:
        wire: one of `WIRES`.
        quantization: determines the share of zeros; with `bits_per_element`, "auto" is "sparse".
        link: the links, if measured.
    """

    def __init__(
        self, wire: str, quantization: Quantization, link: links.Link | None = None
    ) -> None:
        has_budget = wire == "auto" and quantization.bits_per_element is not None
        self._wire = "sparse" if has_budget else wire
        self._quantization = quantization
        self._link = link
        self._measured: tuple[links.Link, float] | None = None
        self._chosen: dict[Job, _Choice] = {}

    @property
    def reasons(self) -> list[str]:
        """One line for each exchange with the wire and the reason, such as the latest trial."""
        return [choice.reason for choice in self._chosen.values()]

    def wire(self, context: Any, job: Job) -> "str | WireTrial":
        """One of `WIRES`, or a trial; called by all processes with equal models."""
        # The time of GPU work is not known, see `stopwatch.Lap`.
        is_on_gpu = any("GPU" in device for device in context.devices)
        is_open = self._wire == "auto" and context.processes and not is_on_gpu
        if not is_open or sum(map(sum, job.buckets)) < MIN_ELEMENTS:
            return self._wire
        if job not in self._chosen:
            if self._measured is None:
                # Eagerly, even while a step is traced.
                with tf.init_scope():
                    self._measured = _measure(context.processes, self._link)
            self._chosen[job] = self._choose(context, job, *self._measured)
            if context.processes.rank == 0:
                _logger.info("%s", self._chosen[job].reason)
        return self._chosen[job].wire

    def _choose(self, context, job, link, unit):
        usual = job.main_wire("auto")
        densest = _densest_share(self._quantization.clip_factor, context.num_replicas)
        seconds, noticed = _expected(job, link, unit, densest, usual)
        # "auto" picks the best wire by bucket.
        wire = noticed[0] if noticed else "auto"
        gradients = f"{sum(map(sum, job.buckets)):,} gradients"
        tried = _expected(job, link, unit, _SPARSEST * densest, usual)[-1]
        tried = ["auto", *dict.fromkeys([*noticed[:1], *tried])][:_MAX_TRIED]
        return _Choice(
            wire if len(tried) == 1 else WireTrial(tried, tried.index(wire)),
            gradients,
            usual,
            f'wire="auto" takes {noticed[0] if noticed else usual} for {gradients} on links of'
            f" {link}: expected times of an exchange in ms are {in_order(seconds)}",
        )


@dataclasses.dataclass(frozen=True)
class _Choice:
    """The wire of one exchange.

    Args:
        wire: one of `WIRES`, or a `WireTrial`.
        gradients: description, for `reason`.
        usual: the wire that "auto" stands for.
        expectation: `reason` without a trial.
    """

    wire: "str | WireTrial"
    gradients: str
    usual: str
    expectation: str

    @property
    def reason(self) -> str:
        """The current wire and the reason, as text."""
        found = self.wire.found if isinstance(self.wire, WireTrial) else None
        if found is None:
            return self.expectation
        names = {"auto": self.usual}
        taken, seconds = found
        of_names = {names.get(wire, wire): of_wire for wire, of_wire in seconds.items()}
        return (
            f'wire="auto" takes {names.get(taken, taken)} for {self.gradients}: measured times'
            f" of an exchange in ms are {in_order(of_names)}"
        )


def _expected(job, link, unit, nonzero_share, usual):
    """Seconds by wire, and the wires that gain a tenth over the usual one, the quickest first."""
    model = ExchangeModel(job, link, nonzero_share)
    possible = wires.possible(wires.LOSSLESS, job.levels, job.rotated)
    seconds = {wire: model.seconds(wire, unit) for wire in possible}
    order = sorted(seconds, key=seconds.__getitem__)
    return seconds, [w for w in order if seconds[w] < (1 - _NOTICED) * seconds[usual]]


def _densest_share(clip_factor, num_replicas):
    """Share of non-zero codes in the densest gradients: mean|g| / scale."""
    if clip_factor == ternary.AUTO:
        clip_factor = ternary.auto_factor(num_replicas) / (2 * _MEAN_OF_STD)
    clipped = _MEAN_OF_STD / clip_factor if clip_factor else 0.0
    return min(1.0, max(clipped, _UNCLIPPED_NONZERO_SHARE))


def _measure(processes, link):
    """`Link`, unless known, and seconds of a unit of arithmetic on the slowest process."""
    # CPU time of all threads, since few encode streams.
    unit = seconds_of_doubling(time.process_time)
    return link or links.measure(processes), links.slowest(processes)(unit)
