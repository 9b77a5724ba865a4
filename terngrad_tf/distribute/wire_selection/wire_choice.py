"""Which wire gradients take where `wire="auto"` leaves it open."""

import dataclasses
import logging
import time
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.telemetry.stopwatch import Job
from terngrad_tf.distribute.wire_selection import links
from terngrad_tf.distribute.wire_selection.exchange_model import ExchangeModel, seconds_of_doubling
from terngrad_tf.distribute.wire_selection.wire_trial import WireTrial

# A wire is taken in place of the usual one where it is expected to be quicker by this share.
_NOTICED = 0.1
# Codes of fewer elements are some kilobytes, which no wire makes much quicker.
MIN_ELEMENTS = 2**16
# The least share of the codes that are not 0, of that of the densest gradients.
_SPARSEST = 0.25
# Wires that are tried: the usual one, and those that may be quicker.
_MAX_TRIED = 3
# The densest codes that were measured on images: mean|g| / std(g), which `clip_factor` divides, at
# LeNet's first step; and the share that is not 0 without clipping, of 2.1 M weights.
_MEAN_OF_STD = 0.5
_UNCLIPPED_NONZERO_SHARE = 0.07

_logger = logging.getLogger(__name__)


class WireChoice:
    """The wire that a strategy's gradients take.

    A named wire is taken. "auto" is usually the lossless wire of known size with the fewest bytes.
    Where many codes travel between processes, links and processors are measured once, before the
    first step; if `ExchangeModel` then expects another lossless wire to be quicker by a tenth, that
    one is taken. All lossless wires give the same bits, so the measurement changes no result.

    How many codes are not 0 is not known before the first step. Taken are as many as in the densest
    gradients that were measured, so that streams are not taken where they might be slower. Wires
    that would be quicker than the usual one by a tenth if a fourth of those codes were not 0 are
    tried in the steps, by a `WireTrial`. Where there are none, as on quick links, steps know one
    wire only.

    All processes must take the same wire. They do, because the choice follows from the gradients,
    which `handshake.compare_models` has found to be alike, and from numbers of the slowest process,
    which all share. A model that is traced again is not measured again.

    Args:
        wire: one of `WIRES`.
        quantization: `Quantization`, which says how many codes are 0. With its `bits_per_element`,
            for which words have no use, "auto" is "sparse".
    """

    def __init__(self, wire: str, quantization: Quantization) -> None:
        has_budget = wire == "auto" and quantization.bits_per_element is not None
        self._wire = "sparse" if has_budget else wire
        self._quantization = quantization
        self._measured: tuple[links.Link, float] | None = None
        self._chosen: dict[Job, _Choice] = {}

    @property
    def reasons(self) -> list[str]:
        """One line for each different exchange whose wire was chosen: which wire, and why.

        Where wires were tried, it tells of the newest trial.
        """
        return [choice.reason for choice in self._chosen.values()]

    def wire(self, context: Any, job: Job) -> "str | WireTrial":
        """One of `WIRES`, or the trial of several; all call it, after they compared their models.

        Args:
            context: `ReductionContext`.
            job: what is exchanged.
        """
        # Of a GPU's work it is unknown what it takes, see `stopwatch.Lap`.
        is_on_gpu = any("GPU" in device for device in context.devices)
        is_open = self._wire == "auto" and context.processes and not is_on_gpu
        if not is_open or sum(map(sum, job.buckets)) < MIN_ELEMENTS:
            return self._wire
        if job not in self._chosen:
            if self._measured is None:
                # Now, though a step is being traced.
                with tf.init_scope():
                    self._measured = _measure(context.processes)
            self._chosen[job] = self._choose(context, job, *self._measured)
            if context.processes.rank == 0:
                _logger.info("%s", self._chosen[job].reason)
        return self._chosen[job].wire

    def _choose(self, context, job, link, unit):
        usual = context.wire(self._wire, max(job.buckets, key=sum), self._quantization).name
        densest = _densest_share(self._quantization.clip_factor, context.num_replicas)
        seconds, order, noticed = _expected(job, link, unit, densest, usual)
        # Usual is the best for each bucket.
        wire = noticed[0] if noticed else self._wire
        expected = ", ".join(f"{wire} {1e3 * seconds[wire]:.3g}" for wire in order)
        gradients = f"{sum(map(sum, job.buckets)):,} gradients"
        tried = _expected(job, link, unit, _SPARSEST * densest, usual)[-1]
        tried = [self._wire, *dict.fromkeys([*noticed[:1], *tried])][:_MAX_TRIED]
        return _Choice(
            wire if len(tried) == 1 else WireTrial(tried, tried.index(wire)),
            gradients,
            usual,
            f'wire="auto" takes {noticed[0] if noticed else usual} for {gradients} on links of'
            f" {link}: expected are, in ms an exchange, {expected}",
        )


@dataclasses.dataclass(frozen=True)
class _Choice:
    """What one exchange takes.

    Args:
        wire: one of `WIRES`, or a `WireTrial`.
        gradients: what is exchanged, as text.
        usual: the wire that "auto" stands for.
        expectation: which wire is taken without a trial, and why, as text.
    """

    wire: "str | WireTrial"
    gradients: str
    usual: str
    expectation: str

    @property
    def reason(self) -> str:
        """Which wire is taken now, and why."""
        found = self.wire.found if isinstance(self.wire, WireTrial) else None
        if found is None:
            return self.expectation
        names = {"auto": self.usual}
        taken, seconds = found
        tried = ", ".join(
            f"{names.get(wire, wire)} {1e3 * seconds[wire]:.3g}"
            for wire in sorted(seconds, key=seconds.__getitem__)
        )
        return (
            f'wire="auto" takes {names.get(taken, taken)} for {self.gradients}: tried were, in ms'
            f" an exchange, {tried}"
        )


def _expected(job, link, unit, nonzero_share, usual):
    """Seconds by wire, wires from the quickest on, and those quicker than usual by a tenth."""
    model = ExchangeModel(job, link, nonzero_share)
    possible = wires.possible(wires.LOSSLESS, job.levels, job.rotated)
    seconds = {wire: model.seconds(wire, unit) for wire in possible}
    order = sorted(seconds, key=seconds.__getitem__)
    return seconds, order, [w for w in order if seconds[w] < (1 - _NOTICED) * seconds[usual]]


def _densest_share(clip_factor, num_replicas):
    """Share of codes that are not 0, of the densest gradients: mean|g| / scale."""
    if clip_factor == ternary.AUTO:
        clip_factor = ternary.auto_factor(num_replicas) / (2 * _MEAN_OF_STD)
    clipped = _MEAN_OF_STD / clip_factor if clip_factor else 0.0
    return min(1.0, max(clipped, _UNCLIPPED_NONZERO_SHARE))


def _measure(processes):
    """`Link`, and seconds of an element's unit of codec on the slowest process."""
    # Of all threads together: streams are made by few.
    unit = seconds_of_doubling(time.process_time)
    return links.measure(processes), links.slowest(processes)(unit)
