"""The last of several traced steps that ran, and its bytes: `TrafficLog`."""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.exchange.observer import Observer
from terngrad_tf.distribute.exchange.plan import Plan
from terngrad_tf.distribute.exchange.traffic import WORD_BYTES, Traffic
from terngrad_tf.distribute.steps.plain_variable import PlainVariable


class LastStep:
    """Keeps a value for each traced step, and returns the value of the step that ran last.

    Python code runs only at tracing, so a variable notes the step that ran, and `num_counts`
    numbers.
    """

    def __init__(self, num_counts: int) -> None:
        self._num_counts = num_counts
        self._known = []
        self._last: PlainVariable | None = None

    def record(self, known: Any, *counts: Any) -> None:
        """Adds to the step under construction a note that it ran.

        `latest` returns `known`, compared by value, and the counts, scalar integers or tensors.
        """
        if known not in self._known:
            self._known.append(known)
        if self._last is None:
            start = np.array([-1, *self._num_counts * [0]], np.int64)
            self._last = PlainVariable("last_step", start)
        number = self._known.index(known)
        self._last.assign(tf.stack([tf.cast(value, tf.int64) for value in (number, *counts)]))

    @property
    def latest(self) -> Any:
        """Value and counts of the last step, a tuple; None before the first step."""
        if self._last is None:
            return None
        index, *counts = map(int, self._last.numpy())
        return None if index < 0 else (self._known[index], *counts)


class TrafficLog:
    """`Traffic` of the latest exchanges, of each group of variables exchanged together."""

    def __init__(self) -> None:
        self._last_step = LastStep(num_counts=0)
        self._groups: dict[tuple[int, ...], _Exchanges] = {}

    def observer(self, plan: Plan) -> "_TrafficOf":
        """The observer of an exchange."""
        group = tuple(plan.indices)
        return _TrafficOf(plan, self._last_step, self._groups.setdefault(group, _Exchanges()))

    @property
    def latest(self) -> Traffic | None:
        """Traffic of the last exchange; None before the first."""
        latest = self._last_step.latest
        return None if latest is None else self._groups[latest[0]].latest

    def of(self, groups: Sequence[Sequence[int]]) -> Traffic | None:
        """The sum of the groups' latest exchanges; None until each was exchanged."""
        known = [self._groups[tuple(g)].latest for g in groups if tuple(g) in self._groups]
        parts = [part for part in known if part is not None]
        return functools.reduce(operator.add, parts) if len(parts) == len(groups) else None


class _TrafficOf(Observer):
    """Adds its bytes to a step that exchanges gradients."""

    def __init__(self, plan, last_step, exchanges):
        self._plan = plan
        self._last_step = last_step
        self._exchanges = exchanges

    def done(self, sums, words):
        traffic = self._plan.rounded_traffic
        self._last_step.record(tuple(self._plan.indices))
        sparse = self._plan.sparse_bytes, self._plan.float_sparse_bytes
        self._exchanges.bytes.record(traffic, *sparse)
        if words:
            self._exchanges.streams.record(traffic, WORD_BYTES * tf.add_n(words))


class _Exchanges:
    """Latest exchange of the same variables.

    Attributes:
        bytes: `LastStep` of the traffic known at tracing; counts: this member's bytes of sparse
            gradients, as received and as floats.
        streams: `LastStep` of the same traffic; counts: bytes of streams.
    """

    def __init__(self):
        self.bytes = LastStep(num_counts=2)
        self.streams = LastStep(num_counts=1)

    @property
    def latest(self):
        latest = self.bytes.latest
        if latest is None:
            return None
        traffic, received_bytes, float32_bytes = latest
        streams = self.streams.latest
        # Another model with as many variables may send no streams.
        if streams is not None and streams[0] == traffic:
            received = traffic.received_bytes + streams[1]
            traffic = dataclasses.replace(traffic, received_bytes=received)
        return traffic + Traffic("float32", traffic.num_members, received_bytes, float32_bytes)
