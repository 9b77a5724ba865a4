"""Choice of bits and wire for `grad_bits="auto"`."""

import dataclasses
import typing
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.exchange import wires
from terngrad_tf.distribute.exchange.options import AUTO
from terngrad_tf.distribute.exchange.plan import Job
from terngrad_tf.distribute.wire_selection import links
from terngrad_tf.distribute.wire_selection.exchange_model import (
    FLOAT,
    FOUR_BITS,
    ExchangeModel,
    in_order,
    nearly_quickest,
    seconds_of_doubling,
)


class Mode(typing.NamedTuple):
    """What `grad_bits="auto"` may take: a name in `reason`, and the strategy's options."""

    name: str
    grad_bits: int
    wire: str = "auto"

    @property
    def options(self) -> str:
        """The options that select the mode, such as "grad_bits=4"."""
        wire = "" if self.wire == "auto" else f', wire="{self.wire}"'
        return f"grad_bits={self.grad_bits}{wire}"


# The most exact mode first.
AUTO_MODES = (
    Mode(FLOAT, 32),
    Mode(FOUR_BITS, 4),
    Mode("ternary", 1),
    Mode("bidirectional", 1, "bidirectional"),
)


@dataclasses.dataclass(frozen=True)
class ModeChoice:
    """The mode of a strategy, one of `AUTO_MODES`, and why, as one line.

    Attributes:
        link: measured links; None in a single process.
    """

    mode: Mode
    reason: str
    link: links.Link | None = None


def quickest_mode(processes: Any, job: Job) -> ModeChoice:
    """Chooses the mode whose exchange should be the quickest, or a more exact one nearly as quick.

    All processes call it with the same sizes, and take the same mode because the slowest process's
    measurements count. A single process, which sends nothing, takes floats.
    """
    if processes is None or processes.size == 1:
        reason = "a single process sends nothing, so rounding would only add noise"
        return ModeChoice(AUTO_MODES[0], f'grad_bits="{AUTO}" takes {FLOAT}: {reason}')
    # Eagerly, even while a step is traced.
    with tf.init_scope():
        link = links.measure(processes)
        unit = links.slowest(processes)(seconds_of_doubling())
    seconds = expected_seconds(job, link, unit)
    mode = nearly_quickest({mode: seconds[mode.name] for mode in AUTO_MODES})
    return ModeChoice(
        mode,
        f'grad_bits="{AUTO}" takes {mode.name} for {sum(map(sum, job.buckets)):,} gradients on'
        f" links of {link}: expected times of an exchange in ms are {in_order(seconds)}; set"
        f" {mode.options} for the same in every run",
        link,
    )


def expected_seconds(job: Job, link: links.Link, unit: float) -> dict[str, float]:
    """Returns the expected seconds of an exchange of ternary codes by names of `AUTO_MODES`.

    `unit` is the seconds of doubling an element.
    """
    # Only streams depend on the share.
    model = ExchangeModel(job, link, wires.NONZERO_SHARE)
    return {
        mode.name: model.seconds(mode.name if mode.grad_bits > 1 else mode.wire, unit)
        for mode in AUTO_MODES
    }
