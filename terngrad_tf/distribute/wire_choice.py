"""Which wire gradients take where `wire="auto"` leaves it open."""

import logging
import time
from typing import Any

import tensorflow as tf

from terngrad_tf import ternary
from terngrad_tf.distribute import links, wires
from terngrad_tf.distribute.exchange_model import ExchangeModel, seconds_of_doubling
from terngrad_tf.distribute.quantization import Quantization
from terngrad_tf.distribute.stopwatch import Job

# A wire is taken in place of the usual one where it is expected to be quicker by this share.
_NOTICED = 0.1
# Codes of fewer elements are some kilobytes, which no wire makes much quicker.
MIN_ELEMENTS = 2**16
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
    gradients that were measured, so that streams are not taken where they might be slower.

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
        self._clip_factor = quantization.clip_factor
        self._measured: tuple[links.Link, float] | None = None
        self._chosen: dict[Job, tuple[str, str]] = {}

    @property
    def reasons(self) -> list[str]:
        """One line for each different exchange whose wire was chosen: which wire, and why."""
        return [reason for _, reason in self._chosen.values()]

    def wire(self, context: Any, job: Job) -> str:
        """One of `WIRES`; all processes call it, after they compared their models.

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
                _logger.info("%s", self._chosen[job][1])
        return self._chosen[job][0]

    def _choose(self, context, job, link, unit):
        """The wire, and the reason."""
        usual = context.wire(self._wire, max(job.buckets, key=sum)).name
        model = ExchangeModel(job, link, _densest_share(self._clip_factor, context.num_replicas))
        seconds = {wire: model.seconds(wire, unit) for wire in wires.LOSSLESS}
        order = sorted(seconds, key=seconds.__getitem__)
        is_noticed = seconds[order[0]] < (1 - _NOTICED) * seconds[usual]
        taken = order[0] if is_noticed else usual
        expected = ", ".join(f"{wire} {1e3 * seconds[wire]:.3g}" for wire in order)
        reason = (
            f'wire="auto" takes {taken} for {sum(map(sum, job.buckets)):,} gradients on links of'
            f" {link}: expected are, in ms an exchange, {expected}"
        )
        # Usual is the best for each bucket.
        return taken if is_noticed else self._wire, reason


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
