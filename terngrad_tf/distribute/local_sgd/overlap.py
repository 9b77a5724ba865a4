"""Changes of weights that travel while replicas take further steps."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.local_sgd.background import BackgroundFunctions
from terngrad_tf.distribute.telemetry.plain_variable import PlainVariable

_numbers = itertools.count()


class ChangesUnderWay:
    """Exchanges changes of a group of weights beside the steps of training.

    `send` keeps what each replica changed, and lets a thread exchange it; `receive`, in a later
    step, waits for the sum. What is kept belongs to a run's saved state, what the thread does not:
    where a run goes on that was saved in between, `receive` starts the exchange again. So all
    processes have the same sums as if none had stopped.

    Args:
        strategy: a `TernGradStrategy`.
        outer: the optimizer for which changes are exchanged as gradients are.
        groups: lists of positions among its variables.
        kept: list of distributed variables, like the optimizer's, with a copy for each replica.
        of_one_size: whether changes are, as `ErrorFeedback` makes them.

    Raises:
        ValueError: processes exchange over NCCL.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        outer: keras.optimizers.Optimizer,
        groups: Sequence[Sequence[int]],
        kept: Sequence[Any],
        of_one_size: bool = False,
    ) -> None:
        processes = strategy.extended.process_group
        if processes is not None and processes.is_nccl:
            raise ValueError(
                "`overlap` must be 0 where processes exchange over NCCL, whose messages start in"
                " the same order everywhere; ClusterOptions(communication='ring') does not."
                f" Received: a cluster of devices such as {processes.device}"
            )
        self._strategy = strategy
        self._outer = outer
        self._groups = groups
        self._kept = kept
        self._of_one_size = of_one_size
        self._background = BackgroundFunctions()
        # Not saved.
        self._started = PlainVariable("started_exchanges", np.zeros(len(groups), bool))

    def send(self, group: int, changes: Sequence[Sequence[tf.Tensor]], step: Any) -> None:
        """Adds to the step under construction that an exchange starts.

        Args:
            group: number of the group.
            changes: of each of its weights, a list with a tensor for each local replica.
            step: int64 scalar tensor that selects the random bits.
        """
        self._add(group)
        done = []
        for position, of_replicas in zip(self._groups[group], changes, strict=True):
            for variable, change in zip(self._copies(position), of_replicas, strict=True):
                done.append(variable.assign(change, read_value=False))
        # Eager assignments are nothing to wait for.
        with tf.control_dependencies([op for op in done if op is not None]):
            self._start(group, step)

    def receive(self, group: int, step: Any, brought: Sequence[tf.Tensor]) -> list[Any]:
        """Adds to the step under construction that it waits for an exchange.

        Args:
            group: number of the group.
            step: as it was sent.
            brought: tensors that exist when there is nothing left to do but to wait.

        Returns:
            List of values with the sum of the changes of each weight on each local device.
        """
        self._add(group)
        started = self._started.read()
        with tf.device("CPU:0"):
            tf.cond(started[group], lambda: step, lambda: self._start(group, step))
        timer = self._strategy.sync_timer

        def wait():
            with tf.control_dependencies(brought):
                return self._background.result(group)

        sums = wait() if timer is None else timer.measure(brought, wait, steps=1)
        self._started.assign(self._started_but(started, group, False))
        return [private.mirrored(self._on_devices(total)) for total in sums]

    def forget(self) -> None:
        """Waits for what is under way, which is of no use: other state is restored."""
        for group in tf.where(self._started.read()).numpy()[:, 0]:
            self._background.result(int(group))
        self._started.assign(tf.zeros([len(self._groups)], tf.bool))

    def _add(self, group):
        """Traces an exchange; not in the thread, as all processes trace in the same order."""
        if group in self._background:
            return

        def exchange(step):
            changes = [[v.read_value() for v in self._copies(i)] for i in self._groups[group]]
            of_one_size = private.gradients_of_one_size(self._of_one_size)
            with self._strategy.scope(), of_one_size:
                sums = private.sum_of_replicas(
                    self._strategy, self._outer, changes, self._groups[group], step
                )
            return [private.local_tensors(total)[0] for total in sums]

        # By it, collectives that run side by side are told apart.
        exchange.__name__ = f"exchange_under_way_{next(_numbers)}"
        with tf.init_scope():
            signature = [tf.TensorSpec([], tf.int64)]
            function = tf.function(exchange, input_signature=signature, autograph=False)
            self._background.add(group, function.get_concrete_function())

    def _start(self, group, step):
        self._background.start(group, step)
        self._started.assign(self._started_but(self._started.read(), group, True))
        return step

    def _copies(self, position):
        return private.local_tensors(self._kept[position])

    def _started_but(self, started, group, value):
        is_group = tf.range(len(self._groups)) == group
        return tf.where(is_group, value, started)

    def _on_devices(self, total):
        copies = {}
        devices = self._strategy.extended.worker_devices
        for device in dict.fromkeys(devices):
            with tf.device(device):
                copies[device] = tf.identity(total)
        return [copies[device] for device in devices]
