"""Cost and loss of gradient exchanges, measured inside the steps."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.common.arguments import check, is_integer
from terngrad_tf.distribute.exchange.plan import Job, Plan
from terngrad_tf.distribute.telemetry import quality
from terngrad_tf.distribute.telemetry.stopwatch import PHASES, Watch
from terngrad_tf.distribute.telemetry.window import Window

WINDOW = 128
# `seconds`: from the last gradient to the last sum, which exists at `end`.
_STEP_COLUMNS = ("step", "kind", "received", "float32", "end", "seconds", *PHASES)
_SAMPLE_COLUMNS = ("step", "nonzero_share", "cosine", "relative_error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTelemetry:
    """One step, or means over several.

    Bytes are counted as in `Traffic`. Seconds are medians over this process's steps, so that an
    evaluation between two steps has no effect; None if they are not measured, as on GPUs. Phases
    are sums over buckets; one bucket's phases overlap other buckets and the backward pass.

    Attributes:
        step: the optimizer's step, the latest of several.
        num_steps: number of steps.
        wire: wire of the ternary gradients; "float32" if none is ternary.
        num_members: members of the exchange.
        received_bytes: payload bytes that a member received a step.
        float32_bytes: the same for a float32 ring all-reduce.
        nonzero_share: share of non-zero ternary codes, of each process's first replica; None
            without a sample, as are the next two.
        cosine: cosine of the reduced gradients with the sum of the replicas' float gradients; all
            ternary gradients are one vector.
        relative_error: length of the difference of these vectors, divided by the length of the sum.
        step_seconds: from the end of one exchange to the end of the next.
        scale_seconds: finding local scales after the last gradient; None if a process has several
            replicas, which find them in the rest of the step.
        encode_seconds: rounding and packing, up to the first message; in one process also adding.
        exchange_seconds: messages, and waiting for other processes; also gradients that stay float.
        decode_seconds: all other work after a bucket's first message.
        rest_seconds: the step without the time from its last gradient to its last sum: forward and
            backward pass, update, data, waiting for other processes' data.
    """

    step: int
    num_steps: int
    wire: str
    num_members: int
    received_bytes: float
    float32_bytes: float
    nonzero_share: float | None
    cosine: float | None
    relative_error: float | None
    step_seconds: float | None
    scale_seconds: float | None
    encode_seconds: float | None
    exchange_seconds: float | None
    decode_seconds: float | None
    rest_seconds: float | None

    @property
    def sent_bytes(self) -> float:
        """Payload bytes that a member sent: all messages of an exchange have one length."""
        return self.received_bytes

    @property
    def compression_ratio(self) -> float:
        """`float32_bytes / received_bytes`; 1.0 without an exchange."""
        return self.float32_bytes / self.received_bytes if self.received_bytes else 1.0

    @property
    def bits_per_element(self) -> float:
        """32 divided by the ratio: bits that travel in place of a float32."""
        return 32 / self.compression_ratio


class Measurements:
    """Numbers of the last steps: `strategy.telemetry`.

    Args:
        freq: gradients are compared in steps divisible by this number, if some are ternary; all
            else is measured in every step. 0 measures nothing.
    """

    def __init__(self, freq: int) -> None:
        self.freq = freq
        self._kinds: list[tuple[str, Job]] = []
        self._steps = Window(WINDOW, len(_STEP_COLUMNS))
        self._samples = Window(WINDOW, len(_SAMPLE_COLUMNS))

    @property
    def count(self) -> int:
        """Steps measured so far."""
        return self._steps.count

    @property
    def last(self) -> StepTelemetry | None:
        """`StepTelemetry` of the last step; None before the first, or if `freq` is 0."""
        return self.mean(1)

    def mean(self, num_steps: int = WINDOW) -> StepTelemetry | None:
        """`StepTelemetry` of the last steps: means, and medians of seconds.

        Args:
            num_steps: number of steps, at most `WINDOW`, the default; fewer if fewer ran.

        Returns:
            None before the first step, or if `freq` is 0.
        """
        check(
            is_integer(num_steps, 1) and num_steps <= WINDOW,
            "num_steps",
            f"must be an integer from 1 to {WINDOW}",
            num_steps,
        )
        rows = self._steps.read()
        if not len(rows):
            return None
        columns = dict(zip(_STEP_COLUMNS, rows[-num_steps:].T, strict=True))
        samples = self._samples.read()
        samples = samples[samples[:, 0] >= columns["step"].min()]
        samples = samples[samples[:, 0] <= columns["step"].max()]
        wire, job = self._kinds[int(columns["kind"][-1])]
        periods = np.diff(rows[-num_steps - 1 :, _STEP_COLUMNS.index("end")])
        step_seconds = _of_finite(np.median, periods)
        seconds = _of_finite(np.median, columns["seconds"])
        rest = None
        if step_seconds is not None and seconds is not None:
            rest = max(step_seconds - seconds, 0.0)
        quality_of = dict(zip(_SAMPLE_COLUMNS, samples.T, strict=True))
        return StepTelemetry(
            step=int(columns["step"][-1]),
            num_steps=len(columns["step"]),
            wire=wire,
            num_members=job.num_members,
            received_bytes=float(columns["received"].mean()),
            float32_bytes=float(columns["float32"].mean()),
            **{name: _of_finite(np.mean, quality_of[name]) for name in _SAMPLE_COLUMNS[1:]},
            **{f"{phase}_seconds": _of_finite(np.median, columns[phase]) for phase in PHASES},
            step_seconds=step_seconds,
            rest_seconds=rest,
        )

    @property
    def job(self) -> Job | None:
        """Tensors that the last step exchanged; None before the first step."""
        rows = self._steps.read()
        return self._kinds[int(rows[-1, _STEP_COLUMNS.index("kind")])][1] if len(rows) else None

    def observer(self, plan: Plan) -> Watch:
        """The observer of an exchange, unless `freq` is 0."""
        return Watch(self, plan)

    def append(self, kind: tuple[str, Job], numbers: Sequence[Any]) -> None:
        """Adds a step: its wire and job, and the other columns."""
        if kind not in self._kinds:
            self._kinds.append(kind)
        step, *others = numbers
        row = [step, self._kinds.index(kind), *others]
        self._steps.append(tf.stack([tf.cast(value, tf.float64) for value in row]))

    def sample(self, step: tf.Tensor, buckets: Sequence[Any], sums: Sequence[Any]) -> None:
        """Compares the gradients if the step is due; see `quality.measure`."""

        def now():
            numbers = quality.measure(buckets, sums)
            self._samples.append(tf.concat([[tf.cast(step, tf.float64)], numbers], 0))
            return step

        tf.cond(tf.equal(step % self.freq, 0), now, lambda: step)


def _of_finite(function, values):
    """Returns a function's number for the finite values; None without one."""
    values = values[np.isfinite(values)]
    return float(function(values)) if len(values) else None
