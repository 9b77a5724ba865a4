"""Several wires that a step has at hand, of which exchanges find the quickest."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.telemetry.plain_variable import PlainVariable

# Exchanges from one trial to the next, tries of each wire in it, and exchanges before the first.
PERIOD = 1000
TRIES = 7
REST = 2
# Another wire is taken where it took less by this share.
_NOTICED = 0.05


class WireTrial:
    """Tries wires on the exchanges of a model's gradients, and takes the quickest.

    A trial is `TRIES` exchanges by one wire, then as many by the next; it begins anew after
    `PERIOD` exchanges. What counts is the median time of a wire's exchanges on the process where it
    is longest. They follow each other because links let pass at once what was not used for a while,
    so that a long message after short ones says little.

    All processes must take the same wire in the same exchange. They do, because a step's wire
    follows from what all exchanged in earlier steps: with the scales of each exchange processes
    send the number of exchanges and their medians, of which all receive the largest. Nothing else
    is sent, and nobody waits.

    Args:
        wires: names of the wires, two or more.
        taken: position of the wire that is taken before the first trial.
    """

    def __init__(self, wires: Sequence[str], taken: int) -> None:
        self.wires = tuple(wires)
        # How many exchanges of the period were done, and which wire is taken.
        self._state = PlainVariable("wire_trial", np.array([0, taken], np.int32))
        # Of this process, in seconds; and the longest medians of the newest trial.
        count = len(self.wires)
        self._times = PlainVariable("wire_times", np.zeros([count, TRIES], np.float32))
        self._medians = PlainVariable("wire_medians", np.zeros([count], np.float32))

    def exchange(self, with_wire: Callable[[str], Any]) -> Any:
        """What `with_wire(name)` returns of the wire whose turn it is.

        Args:
            with_wire: adds an exchange to the step that is being traced. Like all branches of
                `tf.switch_case` it returns the same structure for each wire.
        """
        return tf.switch_case(
            self._turn(), [lambda wire=wire: with_wire(wire) for wire in self.wires]
        )

    def told(self) -> tf.Tensor:
        """What a process sends beside the scales: float32 `[1 + number of wires]`."""
        done = tf.cast(self._state.read()[:1], tf.float32)
        medians = tf.sort(self._times.read(), axis=1)[:, TRIES // 2]
        return tf.concat([done, medians], axis=0)

    def learn(self, told: tf.Tensor, seconds: tf.Tensor) -> None:
        """Ends an exchange.

        Args:
            told: the largest of what all processes sent.
            seconds: that it took, a scalar.
        """
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
        """Number of the try after so many exchanges of the period, and whether there is one."""
        number = done - REST
        return number, (number >= 0) & (number < len(self.wires) * TRIES)

    @property
    def taken(self) -> str:
        """The wire that is taken, but for tries."""
        return self.wires[self._state.numpy()[1]]

    @property
    def found(self) -> tuple[str, dict[str, float]] | None:
        """The wire that is taken and the seconds of each in the newest trial; None before it."""
        medians = self._medians.numpy()
        if not medians.any():
            return None
        return self.taken, dict(zip(self.wires, map(float, medians), strict=True))


class Timing:
    """What an exchange of a trial takes, from the first scales that all share to the last sums.

    Args:
        trial: `WireTrial`.
    """

    def __init__(self, trial: WireTrial) -> None:
        self._trial = trial
        self._told: tf.Tensor | None = None
        self._start: tf.Tensor | None = None

    def shared_scales(self, context: Any, local_scales: Any) -> tf.Tensor:
        """`ReductionContext.shared_scales`; with those of the first bucket the time begins."""
        if self._told is not None:
            return context.shared_scales(local_scales)
        scales, self._told = context.shared_scales(local_scales, self._trial.told())
        self._start, (scales,) = private.stamped([scales])
        return scales

    def end(self, sums: Any) -> None:
        """Ends it when all of a nest of tensors exist."""
        end, _ = private.stamped(tf.nest.flatten(sums))
        self._trial.learn(self._told, end - self._start)
