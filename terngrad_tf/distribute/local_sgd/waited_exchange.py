"""Exchanges that replicas wait for."""

import functools
from collections.abc import Callable

import tensorflow as tf

from terngrad_tf.distribute.local_sgd.fragments import Turns
from terngrad_tf.distribute.local_sgd.outer_updates import OuterUpdates


class WaitedExchange:
    """Exchanges a group of weights within the step after which its turn comes."""

    def __init__(self, updates: OuterUpdates) -> None:
        self.updates = updates

    def after_step(self, turns: Turns, steps: tf.Tensor) -> None:
        """Adds to a step the exchange of the group whose turn it is.

        `steps` counts from the last exchange of all groups together.
        """
        in_turn(self.exchange, turns.group_after(steps), turns.fragments)

    def exchange(self, group: int) -> None:
        """Exchanges the changes of a group and waits for their mean."""
        self.updates.apply(group, self.updates.changes(group))

    def receive(self, group: int) -> None:
        """Ends an exchange under way; here none ever is."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drops the exchange under way, if there is one."""


def in_turn(method: Callable[[int], None], turn: tf.Tensor, fragments: int) -> None:
    """Calls a method with the group whose turn it is; a turn of `fragments` is no group's."""

    def call(group):
        method(group)
        return tf.constant(0)

    calls = [functools.partial(call, group) for group in range(fragments)]
    tf.switch_case(turn, [*calls, lambda: tf.constant(0)])
