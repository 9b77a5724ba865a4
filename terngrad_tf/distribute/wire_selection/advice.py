"""Expected times of a step in other modes: `advise`."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from terngrad_tf.common.arguments import check
from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.wire_selection import links
from terngrad_tf.distribute.wire_selection.exchange_model import (
    FOUR_BITS,
    MODES,
    ExchangeModel,
    option_of,
)

# Smaller gains are not reported.
_NOTICED = 0.05
_LOCAL_STEPS = 32
# Of a byte in TensorFlow's transport besides the link's, see benchmarks/scaling.py.
_TRANSPORT_SECONDS = 4.8e-9


@dataclasses.dataclass(frozen=True)
class Advice:
    """Expected times of a step; converts to a str of one line.

    Attributes:
        current: the wire of the run; "float32" if no gradient is ternary.
        seconds: `{mode: expected seconds of a step}` for "float32" (`grad_bits=32`), each wire that
            can carry the run's codes, and "4 bits" (`grad_bits=4`) if these are ternary.
        local_steps_seconds: expected seconds with `DiLoCo`, `sync_every=32` and the current wire.
        measured_seconds: measured seconds of a step.
        link: measured or given links.
    """

    current: str
    seconds: dict[str, float]
    local_steps_seconds: float
    measured_seconds: float
    link: links.Link

    @property
    def quickest(self) -> str:
        """The quickest mode; the current one if the gain is a few per cent."""
        best = min(self.seconds, key=self.seconds.__getitem__)
        is_noticed = self.seconds[best] < (1 - _NOTICED) * self.seconds[self.current]
        return best if is_noticed else self.current

    def __str__(self) -> str:
        now = option_of(self.current)
        if self.quickest == self.current:
            told = f"no other mode would be much faster than {now}"
        else:
            times = self.seconds[self.current] / self.seconds[self.quickest]
            told = f"{option_of(self.quickest)} would be {times:.1f} times faster than {now}"
        modes = sorted(self.seconds, key=self.seconds.__getitem__)
        expected = ", ".join(f"{mode} {1e3 * self.seconds[mode]:.0f}" for mode in modes)
        return (
            f"links of {self.link}: {told}. A step took {1e3 * self.measured_seconds:.0f} ms;"
            f" expected times in ms are {expected}; local steps (DiLoCo, sync_every={_LOCAL_STEPS})"
            f" {1e3 * self.local_steps_seconds:.0f}"
        )


def computing_seconds(rests: Sequence[float], steps: Sequence[float], exchange: float) -> float:
    """Returns the seconds of a step without its exchange, from those of each process.

    A process waits for others in its exchange if it is quicker, but in its rest if its exchange
    ends sooner, as over a quicker link. So the rest is what the `exchange` leaves of a step, but
    not less than the shortest measured rest nor more than the longest.

    Example:
    >>> computing_seconds(rests=[5.0, 1.0], steps=[7.0, 7.0], exchange=2.0)
    5.0
    """
    return min(max(max(steps) - exchange, min(rests)), max(rests))


def advise(
    strategy: tf.distribute.Strategy,
    *,
    bits_per_second: float | None = None,
    round_trip_seconds: float = 0.0,
) -> Advice | None:
    """Estimates the time of a step with other wires, with finer codes and with float gradients.

        step     = rest + codec + sum over buckets of scales and messages
        codec    = elements * units of the mode * seconds of a unit
        messages = number of messages * seconds of a small message
                   + received bytes * seconds of a byte

    The run measured `rest` and, by its own codec, the seconds of a unit. All processes use the same
    values if `advise` measures the links. The bytes follow from each wire's formula and the
    measured share of non-zero codes. The estimate assumes that codecs
    compare as on the machine of their measurement, that the backward pass hides the same part of
    every exchange, that links have no other traffic, and that all wires have the same share of
    non-zero codes.

    Args:
        strategy: a `TernGradStrategy` over several processes that trained with `telemetry_freq`
            above 0.
        bits_per_second: rate of the links. Default: measured in a second, on slow links in less
            than a minute, by a call on all processes.
        round_trip_seconds: round trip of the links, if `bits_per_second` is given. Default 0.

    Returns:
        `Advice`; None if the run measured fewer than two steps, or no times, as on GPUs.

    Raises:
        ValueError: an argument is out of range, there is a single process, or replicas took local
            steps.
    """
    processes = getattr(strategy.extended, "process_group", None)
    check(processes is not None, "strategy", "must be one over several processes", strategy)
    rule = "must be one whose steps exchange gradients: telemetry measures no step of `DiLoCo`"
    check(not strategy.extended.takes_local_steps, "strategy", rule, strategy)
    for name, value, least in (
        ("bits_per_second", bits_per_second, 1.0),
        ("round_trip_seconds", round_trip_seconds, 0.0),
    ):
        is_number = isinstance(value, int | float) and least <= value < float("inf")
        check(value is None or is_number, name, f"must be a finite number from {least:g}", value)
    mean = strategy.telemetry.mean()
    if mean is None or mean.step_seconds is None or mean.rest_seconds is None:
        return None
    if bits_per_second is None:
        link = links.measure(processes)
    else:
        link = links.Link(8 / bits_per_second + _TRANSPORT_SECONDS, round_trip_seconds)
    job = strategy.telemetry.job
    share = wires.NONZERO_SHARE if mean.nonzero_share is None else mean.nonzero_share
    codec = [mean.scale_seconds, mean.encode_seconds, mean.decode_seconds]
    model = ExchangeModel(job, link, share)
    unit = model.unit_seconds(mean.wire, sum(s or 0.0 for s in codec))
    rests, steps = [mean.rest_seconds], [mean.step_seconds]
    if bits_per_second is None:
        own = tf.constant([unit, *rests, *steps], tf.float32)
        units, rests, steps = np.transpose(processes.all_gather(own)).tolist()
        unit = max(units)
    # Float gradients may take streams, too: they would not be rotated then.
    modes = wires.possible(MODES, job.levels, job.rotated and bool(job.buckets))
    if job.levels > 1:
        modes.remove(FOUR_BITS)
    exchange_of = {mode: model.seconds(mode, unit) for mode in modes}
    rest = computing_seconds(rests, steps, exchange_of[mean.wire])
    return Advice(
        current=mean.wire,
        seconds={mode: rest + seconds for mode, seconds in exchange_of.items()},
        local_steps_seconds=rest + exchange_of[mean.wire] / _LOCAL_STEPS,
        measured_seconds=mean.step_seconds,
        link=link,
    )
