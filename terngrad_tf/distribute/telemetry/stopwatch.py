"""Times of one exchange of gradients, measured inside the step."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, Traffic

PHASES = ("scale", "encode", "exchange", "decode")


@dataclasses.dataclass(frozen=True)
class Job:
    """The tensors of an exchange.

    Attributes:
        num_members: members of the exchange.
        num_local: replicas whose codes a member adds before it sends.
        buckets: numbers of elements of the ternary gradients, by bucket.
        floats: numbers of elements of dense gradients that stay float.
        levels: L, for codes from -L to L.
        rotated: True if gradients are rotated before they are rounded.
    """

    num_members: int
    num_local: int
    buckets: tuple[tuple[int, ...], ...]
    floats: tuple[int, ...]
    levels: int = 1
    rotated: bool = False


class Watch:
    """Measures one exchange of all gradients, unless `telemetry.freq` is 0.

    Args:
        telemetry: `Measurements`.
        context: `ReductionContext`.
        job: the exchanged tensors.
    """

    def __init__(self, telemetry: Any, context: Any, job: Job) -> None:
        self._telemetry = telemetry
        self._job = job
        self._context = context
        self._laps: list[Lap] = []
        self._compared: list[tuple[Any, list[Any]]] = []

    def lap(self, brought: Sequence[Any], starts: Sequence[Any] | None = None) -> Any:
        """Starts the clock for a bucket, or for gradients that stay float.

        Args:
            brought: the local scales of each replica; or all local tensors of float gradients.
            starts: times when the gradients of a bucket existed; None for float gradients.
        """
        if not self._telemetry.freq:
            return _NoLap(self._context, brought)
        self._laps.append(Lap(self._context, brought, starts))
        return self._laps[-1]

    def compare(self, bucket: Any, reduced: Sequence[Sequence[tf.Tensor]]) -> None:
        """Notes a bucket and its sums, one for each local device, for a comparison."""
        if not self._telemetry.freq:
            return
        # The comparison's messages are not measured.
        bucket = dataclasses.replace(bucket, context=self._context)
        self._compared.append((bucket, [total[0] for total in reduced]))

    def record(
        self, step: tf.Tensor, traffic: Traffic, own_bytes: Any, words: Sequence[Any] = ()
    ) -> None:
        """Records the exchange.

        Args:
            step: the optimizer's step.
            traffic: `Traffic` of the dense gradients, without streams.
            own_bytes: bytes of this member's sparse gradients, a number or a scalar tensor.
            words: numbers of received words of streams, scalar tensors.
        """
        if not self._telemetry.freq:
            return
        with tf.device(self._context.devices[0]):
            step = tf.cast(step, tf.int64)
            if not self._laps:
                self.lap([step]).end([[step]])
            laps = self._laps
            end = tf.reduce_max([lap.finish for lap in laps])
            times = [
                end,
                end - tf.reduce_max([lap.start for lap in laps]),
                *(tf.add_n([lap.seconds(phase) for lap in laps]) for phase in PHASES),
            ]
            gathered = (traffic.num_members - 1) * tf.cast(own_bytes, tf.float64)
            streams = [WORD_BYTES * tf.cast(count, tf.float64) for count in words]
            self._telemetry.append(
                (traffic.wire, self._job),
                [
                    step,
                    tf.add_n([traffic.received_bytes + gathered, *streams]),
                    traffic.float32_bytes + gathered,
                    *times,
                ],
            )
            if self._compared:
                self._telemetry.sample(step, *map(list, zip(*self._compared, strict=True)))


class _NoLap:
    """Lap without measurements."""

    def __init__(self, context, brought):
        self.context = context
        self.brought = brought

    def end(self, sums):
        return sums


class Lap:
    """The times of one bucket.

    Args:
        context: `ReductionContext`.
        brought, starts: as for `Watch.lap`.

    Attributes:
        context: the given context, with measured messages.
        brought: the given tensors, to be used in their place.
        start: time when all gradients exist.
        finish: time when all sums exist.
    """

    def __init__(self, context: Any, brought: Any, starts: Any):
        # Operations of a GPU only queue its work, and end before the work does.
        self._is_measured = "GPU" not in context.devices[0]
        self._messages = []
        self._is_encoded = starts is not None
        self._finds_scales = self._is_encoded and context.num_local == 1
        self._scaled, self.brought = self.stamped(brought)
        self.start = self._scaled
        if self._finds_scales and self._is_measured:
            (self.start,) = private.local_tensors(starts[0])
        self.context = context
        if context.processes:
            self.context = context.with_processes(_TimedProcesses(context.processes, self))

    def end(self, sums: Sequence[Sequence[tf.Tensor]]) -> list[list[tf.Tensor]]:
        """Stops the clock; returns the sums, to be used instead."""
        sums = list(sums)
        different = {id(t): t for t in tf.nest.flatten(sums)}
        self.finish, later = self.stamped([*different.values()])
        later = dict(zip(different, later, strict=True))
        return [[later[id(t)] for t in of_devices] for of_devices in sums]

    def stamped(self, tensors: Any) -> tuple[tf.Tensor, Any]:
        """Time when all tensors exist, and the tensors, to be used instead."""
        if not self._is_measured:
            return tf.constant(math.nan, tf.float64), tensors
        now, later = private.stamped(tf.nest.flatten(tensors))
        return now, tf.nest.pack_sequence_as(tensors, later)

    def message(self, start: tf.Tensor, finish: tf.Tensor) -> None:
        """Notes a message that was sent at `start` and received at `finish`."""
        self._messages.append((start, finish))

    def seconds(self, phase: str) -> tf.Tensor:
        """Seconds of one of `PHASES`, a float64 scalar tensor."""
        nothing = tf.constant(0.0, tf.float64)
        if not self._is_encoded:
            return self.finish - self.start if phase == "exchange" else nothing
        if phase == "scale":
            unknown = tf.constant(math.nan, tf.float64)
            # A scale may be found before a thread reads the clock.
            found = tf.maximum(self._scaled - self.start, nothing)
            return found if self._finds_scales else unknown
        if phase == "exchange":
            return self._exchange(self._messages)
        # The first message holds the scales, which encoding waits for.
        shared = self._messages[0][1] if self._messages else self._scaled
        first = self._messages[1][0] if self._messages else self.finish
        if phase == "encode":
            return first - shared
        return self.finish - first - self._exchange(self._messages[1:])

    def _exchange(self, messages):
        return tf.add_n([tf.constant(0.0, tf.float64), *(f - s for s, f in messages)])


class _TimedProcesses:
    """`ProcessGroup` with messages that a lap measures."""

    def __init__(self, processes, lap):
        self._processes = processes
        self._lap = lap
        self.size, self.rank = processes.size, processes.rank

    def all_reduce_sum(self, tensor):
        return self._timed(self._processes.all_reduce_sum, tensor)

    def all_reduce_max(self, tensor):
        return self._timed(self._processes.all_reduce_max, tensor)

    def all_gather(self, tensor):
        return self._timed(self._processes.all_gather, tensor)

    def all_to_all(self, tensor):
        return self._timed(self._processes.all_to_all, tensor)

    def _timed(self, collective, tensor):
        start, tensor = self._lap.stamped(tensor)
        finish, result = self._lap.stamped(collective(tensor))
        self._lap.message(start, finish)
        return result
