"""Exchanges that travel while replicas take further steps."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.exchange.buckets import ReductionContext
from terngrad_tf.distribute.local_sgd.background import BackgroundFunctions
from terngrad_tf.distribute.local_sgd.fragments import Turns
from terngrad_tf.distribute.local_sgd.outer_updates import OuterUpdates
from terngrad_tf.distribute.local_sgd.waited_exchange import WaitedExchange, in_turn
from terngrad_tf.distribute.steps.contexts import changes_as_gradients
from terngrad_tf.distribute.steps.plain_variable import PlainVariable

_numbers = itertools.count()


class OverlappedExchange(WaitedExchange):
    """Exchanges a group of weights beside the steps of training.

    `send` stores the changes, and a thread exchanges them. `receive`, some steps later, waits for
    the sum, updates the shared weights, and mixes them into each replica's:

        w_k = alpha * w_k + (1 - alpha) * w

    If a run is saved and resumes between the two, `receive` repeats the exchange of the stored
    changes.

    Args:
        updates: the outer optimizer's updates.
        copies: distributed variables like the weights that store the changes.
        alpha: share of a replica's weights in the mixture.

    Raises:
        ValueError: processes exchange over NCCL.
    """

    def __init__(self, updates: OuterUpdates, copies: Sequence[Any], alpha: float) -> None:
        super().__init__(updates)
        processes = updates.strategy.extended.process_group
        if processes is not None and processes.is_nccl:
            raise ValueError(
                "`overlap` must be 0 if processes exchange over NCCL, which needs messages in the"
                " same order on all of them; use ClusterOptions(communication='ring')."
                f" Received: a cluster of devices such as {processes.device}"
            )
        self._copies = copies
        self._alpha = alpha
        self._background = BackgroundFunctions()
        # Positions in each group of changes whose sums have known noise.
        self._noisy: dict[int, list[int]] = {}
        # Not saved.
        self._started = PlainVariable("started_exchanges", np.zeros(len(updates.groups), bool))

    def after_step(self, turns: Turns, steps: tf.Tensor) -> None:
        """Adds to a step the end of one exchange and the start of another."""
        in_turn(self.receive, turns.arrived_after(steps), turns.fragments)
        in_turn(self.send, turns.group_after(steps), turns.fragments)

    def send(self, group: int) -> None:
        """Adds to a step the start of a group's exchange."""
        changes, step = self.updates.changes(group), self.updates.step(group)
        self._add(group)
        done = []
        for position, of_replicas in zip(self.updates.groups[group], changes, strict=True):
            for variable, change in zip(self._copies_of(position), of_replicas, strict=True):
                done.append(variable.assign(change, read_value=False))
        # Eager assignments return None and have already finished.
        with tf.control_dependencies([op for op in done if op is not None]):
            self._start(group, step)

    def receive(self, group: int) -> None:
        """Adds to a step the end of a group's exchange."""
        updates = self.updates
        # Computed before the wait.
        brought = updates.views.own_tensors(group)
        self._add(group)
        self._repeat_after_resuming(group)
        sums, noise = self._result(group, brought)
        updates.apply(group, sums, noise)
        updates.views.mix(group, self._alpha)

    def forget(self) -> None:
        """Waits for the exchange under way and drops its result."""
        for group in tf.where(self._started.read()).numpy()[:, 0]:
            self._background.result(int(group))
        self._started.assign(tf.zeros([len(self.updates.groups)], tf.bool))

    def _repeat_after_resuming(self, group):
        """Starts the exchange if the run was saved after `send` and has resumed since."""
        step = self.updates.step(group)
        with tf.device("CPU:0"):
            tf.cond(self._started.read()[group], lambda: step, lambda: self._start(group, step))

    def _result(self, group, brought):
        """Waits for the sums of changes, by weight and on each local device, and their noise.

        Args:
            brought: tensors that are computed first.
        """
        timer = self.updates.strategy.sync_timer

        def wait():
            with tf.control_dependencies(brought):
                return self._background.result(group)

        results = wait() if timer is None else timer.measure(brought, wait)
        self._note_started(group, False)
        context = ReductionContext.of(self.updates.strategy)
        values = [private.mirrored(context.on_all_devices(tensor)) for tensor in results]
        count = len(self.updates.groups[group])
        noise = dict(zip(self._noisy[group], values[count:], strict=True))
        return values[:count], [noise.get(i) for i in range(count)]

    def _add(self, group):
        """Traces an exchange here, not in the thread: all processes trace in the same order."""
        if group in self._background:
            return
        updates = self.updates
        positions = updates.groups[group]

        def exchange(step):
            changes = [[v.read_value() for v in self._copies_of(i)] for i in positions]
            as_gradients = changes_as_gradients(updates.selection.are_of_one_size)
            with updates.strategy.scope(), as_gradients:
                sums, noise = private.sum_of_replicas(
                    updates.strategy, updates.outer, changes, positions, step
                )
            self._noisy[group] = [i for i, value in enumerate(noise) if value is not None]
            values = [*sums, *(noise[i] for i in self._noisy[group])]
            return [private.local_tensors(value)[0] for value in values]

        # Distinguishes collectives that run concurrently.
        exchange.__name__ = f"exchange_under_way_{next(_numbers)}"
        with tf.init_scope():
            signature = [tf.TensorSpec([], tf.int64)]
            function = tf.function(exchange, input_signature=signature, autograph=False)
            self._background.add(group, function.get_concrete_function())

    def _start(self, group, step):
        self._background.start(group, step)
        self._note_started(group, True)
        return step

    def _copies_of(self, position):
        return private.local_tensors(self._copies[position])

    def _note_started(self, group, is_started):
        is_group = tf.range(len(self.updates.groups)) == group
        self._started.assign(tf.where(is_group, is_started, self._started.read()))
