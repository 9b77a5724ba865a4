"""The last of several traced steps that ran, and its bytes."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute.exchange.traffic import Traffic, gathered_traffic
from terngrad_tf.distribute.telemetry.plain_variable import PlainVariable


class LastStep:
    """Keeps a value for each traced step, and returns the value of the step that ran last.

    A step's Python code runs only when the step is traced; a variable notes which of several traced
    steps, of one model or of many, ran last.
    """

    def __init__(self) -> None:
        self._known = []
        self._last: PlainVariable | None = None

    def record(self, known: Any, count: Any) -> tf.Tensor | None:
        """Adds to the step under construction a note that it ran.

        Args:
            known: value that `latest` returns after the step; compared by value.
            count: scalar integer, a tensor if only the running step knows it.
        """
        if known not in self._known:
            self._known.append(known)
        if self._last is None:
            self._last = PlainVariable("last_step", np.array([-1, 0], np.int64))
        number = self._known.index(known)
        self._last.assign(tf.stack([tf.cast(number, tf.int64), tf.cast(count, tf.int64)]))

    @property
    def latest(self) -> Any:
        """Value and count of the last step, a pair; None before the first step."""
        if self._last is None:
            return None
        index, count = self._last.numpy()
        return None if index < 0 else (self._known[index], int(count))


class LastTraffic:
    """`Traffic` of the latest exchange of the same variables."""

    def __init__(self) -> None:
        self._exchange = LastStep()
        self._streams = LastStep()

    def record(self, traffic: Traffic, gathered_bytes: Any) -> None:
        """Adds an exchange to the step under construction.

        Args:
            traffic: traffic that is known when the step is traced.
            gathered_bytes: bytes of sparse gradients of this member, an integer scalar.
        """
        self._exchange.record(traffic, gathered_bytes)

    def record_streams(self, traffic: Traffic, num_bytes: Any) -> None:
        """Adds bytes of streams, an integer scalar tensor, to the exchange with `traffic`."""
        self._streams.record(traffic, num_bytes)

    @property
    def latest(self) -> Traffic | None:
        """Traffic of the latest exchange; None before the first."""
        latest = self._exchange.latest
        if latest is None:
            return None
        traffic, gathered_bytes = latest
        streams = self._streams.latest
        # Another model with the same number of variables may send no streams.
        if streams is not None and streams[0] == traffic:
            received = traffic.received_bytes + streams[1]
            traffic = dataclasses.replace(traffic, received_bytes=received)
        return traffic + gathered_traffic(gathered_bytes, traffic.num_members)
