"""Trials of several wires within training steps."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.exchange.observer import Observer
from terngrad_tf.distribute.steps.plain_variable import PlainVariable

# In exchanges: from one trial to the next, tries of a wire, and before the first trial.
PERIOD = 1000
TRIES = 7
REST = 2
# Least measured gain of another wire.
_NOTICED = 0.05


class WireTrial:
    """Tries wires on the exchanges of a model's gradients, and takes the quickest.

    A trial is `TRIES` exchanges by each wire in turn, every `PERIOD` exchanges. The wires' median
    times on the slowest process count. A wire's exchanges follow each other because an idle link
    passes a long message faster than usual.

    All processes take the same wire in the same exchange: with its scales a process sends its
    number of exchanges and its medians, and all receive the largest.

    Args:
        wires: names of two or more wires.
        taken: position of the wire before the first trial.
    """

    def __init__(self, wires: Sequence[str], taken: int) -> None:
        self.wires = tuple(wires)
        # Exchanges in the period, and the position of the taken wire.
        self._state = PlainVariable("wire_trial", np.array([0, taken], np.int32))
        # This process's seconds, and the longest medians of the latest trial.
        count = len(self.wires)
        self._times = PlainVariable("wire_times", np.zeros([count, TRIES], np.float32))
        self._medians = PlainVariable("wire_medians", np.zeros([count], np.float32))

    def exchange(self, with_wire: Callable[[str], Any]) -> Any:
        """Exchanges by the wire whose turn it is; returns the result of `with_wire`.

        `with_wire` adds an exchange to the step, with equal structures for `tf.switch_case`.
        """
        return tf.switch_case(
            self._turn(), [lambda wire=wire: with_wire(wire) for wire in self.wires]
        )

    def observer(self) -> Observer:
        """The observer of one exchange."""
        return _Timing(self)

    def told(self) -> tf.Tensor:
        """Message beside the scales: float32 `[1 + number of wires]`."""
        done = tf.cast(self._state.read()[:1], tf.float32)
        medians = tf.sort(self._times.read(), axis=1)[:, TRIES // 2]
        return tf.concat([done, medians], axis=0)

    def learn(self, told: tf.Tensor, seconds: tf.Tensor) -> None:
        """Ends an exchange; `told` is the maximum of all processes' messages."""
        done, medians = tf.cast(told[0], tf.int32), told[1:]
        taken = self._state.read()[1]
        is_end = tf.equal(done, REST + len(self.wires) * TRIES)
        self._medians.assign(tf.where(is_end, medians, self._medians.read()))
        quickest = tf.argmin(medians, output_type=tf.int32)
        is_noticed = medians[quickest] < (1 - _NOTICED) * medians[taken]
        taken = tf.where(is_end & is_noticed, quickest, taken)
        number, is_try = self._try(done)
        cell = tf.stack([number // TRIES, number % TRIES])
        times = self._times.read()
        tried = tf.tensor_scatter_nd_update(
            *(times, [tf.where(is_try, cell, [0, 0])], [tf.cast(seconds, tf.float32)])
        )
        self._times.assign(tf.where(is_try, tried, times))
        self._state.assign(tf.stack([(done + 1) % PERIOD, taken]))

    def _turn(self):
        """Position of the wire of the next exchange."""
        done, taken = tf.unstack(self._state.read())
        number, is_try = self._try(done)
        return tf.where(is_try, number // TRIES, taken)

    def _try(self, done):
        """Number of the try after `done` exchanges of the period, and whether it is one."""
        number = done - REST
        return number, (number >= 0) & (number < len(self.wires) * TRIES)

    @property
    def taken(self) -> str:
        """The wire that is taken outside of trials."""
        return self.wires[self._state.numpy()[1]]

    @property
    def found(self) -> tuple[str, dict[str, float]] | None:
        """The taken wire, and all wires' seconds in the latest trial; None before."""
        medians = self._medians.numpy()
        if not medians.any():
            return None
        return self.taken, dict(zip(self.wires, map(float, medians), strict=True))


class _Timing(Observer):
    """Times an exchange of a trial, from the first shared scales to the last sums."""

    def __init__(self, trial):
        self._trial = trial
        self._heard = None
        self._start = None

    def bucket_ready(self, bucket):
        """Sends the trial's message with the first bucket's scales."""
        return bucket if bucket.number else dataclasses.replace(bucket, told=self._trial.told())

    def scales_shared(self, bucket):
        """Starts the clock when the first bucket's scales exist."""
        if bucket.told is None:
            return bucket
        self._heard = bucket.told
        self._start, (scales,) = private.stamped([bucket.scales])
        return dataclasses.replace(bucket, scales=scales)

    def done(self, sums, words):
        """Stops the clock when all sums exist."""
        end, _ = private.stamped(tf.nest.flatten(sums))
        self._trial.learn(self._heard, end - self._start)
