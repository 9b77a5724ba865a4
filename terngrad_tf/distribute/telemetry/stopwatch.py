"""Times of one exchange of gradients, measured inside the step."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.exchange.buckets import Bucket
from terngrad_tf.distribute.exchange.observer import Observer
from terngrad_tf.distribute.exchange.plan import Plan
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES

PHASES = ("scale", "encode", "exchange", "decode")


class Watch(Observer):
    """Measures one exchange of all gradients."""

    def __init__(self, telemetry: Any, plan: Plan) -> None:
        self._telemetry = telemetry
        self._plan = plan
        self._laps: list[Lap] = []
        self._compared: list[tuple[Any, list[Any]]] = []

    def floats_ready(self, gradients: Sequence[Sequence[Any]]) -> None:
        """Starts the clock for gradients that stay float."""
        self._laps.append(Lap(self._plan.context, gradients, None))

    def floats_reduced(self, sums: Sequence[list[tf.Tensor]]) -> list[list[tf.Tensor]]:
        """Stops the clock."""
        return self._laps[-1].end(sums)

    def bucket_ready(self, bucket: Bucket) -> Bucket:
        """Starts the clock for a bucket."""
        times = self._plan.local_scales.times[bucket.number : bucket.number + 1]
        lap = Lap(bucket.context, bucket.measured, times)
        self._laps.append(lap)
        return dataclasses.replace(bucket, context=lap.context, measured=list(lap.brought))

    def scales_shared(self, bucket: Bucket) -> Bucket:
        """Notes which messages held scales."""
        self._laps[-1].scales_shared()
        return bucket

    def bucket_reduced(self, bucket: Bucket, sums: Sequence[Any]) -> list[list[tf.Tensor]]:
        """Stops the clock, and notes what `quality.measure` compares."""
        sums = self._laps[-1].end(sums)
        # The comparison's messages are not measured.
        bucket = dataclasses.replace(bucket, context=self._plan.context)
        self._compared.append((bucket, [total[0] for total in sums]))
        return sums

    def done(self, sums: Mapping[int, Any], words: Sequence[tf.Tensor]) -> None:
        """Records the exchange."""
        traffic, context = self._plan.traffic, self._plan.context
        with tf.device(context.devices[0]):
            step = tf.cast(self._plan.step, tf.int64)
            laps = self._laps
            if not laps:
                laps = [Lap(context, [step], None)]
                laps[0].end([[step]])
            end = tf.reduce_max([lap.finish for lap in laps])
            seconds = [lap.seconds() for lap in laps]
            times = [
                end,
                end - tf.reduce_max([lap.start for lap in laps]),
                *(tf.add_n([of_lap[phase] for of_lap in seconds]) for phase in PHASES),
            ]
            sparse, as_floats = (
                tf.cast(count, tf.float64)
                for count in (self._plan.sparse_bytes, self._plan.float_sparse_bytes)
            )
            streams = [WORD_BYTES * tf.cast(count, tf.float64) for count in words]
            self._telemetry.append(
                (traffic.wire, self._plan.job),
                [
                    step,
                    tf.add_n([traffic.received_bytes + sparse, *streams]),
                    traffic.float32_bytes + as_floats,
                    *times,
                ],
            )
            if self._compared:
                self._telemetry.sample(step, *map(list, zip(*self._compared, strict=True)))


class Lap:
    """The times of one bucket.

    Args:
        context: `ReductionContext`.
        brought: the local scales of each replica; or all local tensors of float gradients.
        starts: times when a bucket's gradients existed; None for float gradients.

    Attributes:
        context: the given context, with measured messages.
        brought: tensors to use in place of the given ones.
        start: time when all gradients exist.
        finish: time when all sums exist.
    """

    def __init__(self, context: Any, brought: Any, starts: Any):
        # Operations of a GPU end before its queued work does.
        self._is_measured = "GPU" not in context.devices[0]
        self._messages, self._num_of_scales = [], 0
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
        """Notes a message's times."""
        self._messages.append((start, finish))

    def scales_shared(self) -> None:
        """Notes that all messages so far held scales, which encoding waits for."""
        self._num_of_scales = len(self._messages)

    def seconds(self) -> dict[str, tf.Tensor]:
        """Seconds of each of `PHASES`, float64 scalar tensors."""
        nothing, unknown = tf.constant(0.0, tf.float64), tf.constant(math.nan, tf.float64)
        if not self._is_encoded:
            return dict.fromkeys(PHASES, nothing) | {"exchange": self.finish - self.start}
        of_scales = self._messages[: self._num_of_scales]
        of_codes = self._messages[self._num_of_scales :]
        shared = of_scales[-1][1] if of_scales else self._scaled
        encoded = of_codes[0][0] if of_codes else self.finish
        # A scale may be found before a thread reads the clock.
        found = tf.maximum(self._scaled - self.start, nothing)
        of_codes_seconds = tf.add_n([nothing, *(end - begin for begin, end in of_codes)])
        of_scales_seconds = tf.add_n([nothing, *(end - begin for begin, end in of_scales)])
        return {
            "scale": found if self._finds_scales else unknown,
            "encode": encoded - shared,
            "exchange": of_scales_seconds + of_codes_seconds,
            "decode": self.finish - encoded - of_codes_seconds,
        }


class _TimedProcesses:
    """`ProcessGroup` with messages that a lap measures."""

    def __init__(self, processes, lap):
        self._processes = processes
        self._lap = lap
        self.size, self.rank = processes.size, processes.rank

    def all_reduce_sum(self, tensor):
        return self._timed(self._processes.all_reduce_sum, tensor)

    def all_gather(self, tensor):
        return self._timed(self._processes.all_gather, tensor)

    def all_to_all(self, tensor):
        return self._timed(self._processes.all_to_all, tensor)

    def _timed(self, collective, tensor):
        start, tensor = self._lap.stamped(tensor)
        finish, result = self._lap.stamped(collective(tensor))
        self._lap.message(start, finish)
        return result
