"""Updates of the outer optimizer by the changes of replicas' weights."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.local_sgd.error_feedback import ErrorFeedback, WholeChanges
from terngrad_tf.distribute.steps.contexts import changes_as_gradients, local_updates


class OuterUpdates:
    """Gives the outer optimizer the mean change of a group of weights as a gradient.

        g = (1/N) sum_k (w - w_k)
        w = outer(w, g)

    Call methods in cross-replica context.

    Args:
        strategy: a `TernGradStrategy`.
        outer: the outer optimizer, built for `weights`.
        weights: list of `keras.Variable`s.
        groups: lists of positions in `weights`.
        views: `LocalWeights` of weights and groups.
        selection: selects the exchanged part of changes.
        exchanges: int64 variable `[groups]`, counts of exchanges; None for one group.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        outer: keras.optimizers.Optimizer,
        weights: Sequence[keras.Variable],
        groups: Sequence[Sequence[int]],
        views: private.LocalWeights,
        selection: WholeChanges | ErrorFeedback,
        exchanges: keras.Variable | None,
    ) -> None:
        self.strategy = strategy
        self.outer = outer
        self.groups = groups
        self.views = views
        self.selection = selection
        self._weights = weights
        self._exchanges = exchanges

    def step(self, group: int) -> tf.Tensor:
        """A group's exchanges, the outer optimizer's step; an int64 scalar tensor."""
        if self._exchanges is None:
            return tf.convert_to_tensor(self.outer.iterations)
        return self._exchanges[group]

    def changes(self, group: int, share: tf.Tensor | None = None) -> list[list[tf.Tensor]]:
        """Selected changes of a group; their sum over all replicas is the mean.

        Returns, for each weight, a list with a tensor for each local replica. `share` is the weight
        of this process's changes in the mean, a scalar tensor, by default 1.
        """
        changes = self.views.changes(group)
        if share is not None:
            changes = [[change * tf.cast(share, change.dtype) for change in c] for c in changes]
        changes = self.selection.take(self.groups[group], changes, self.step(group))
        count = self.strategy.num_replicas_in_sync
        return [[change / count for change in of_replicas] for of_replicas in changes]

    def apply(self, group: int, changes: Sequence[Any], noise: Sequence[Any] | None = None) -> None:
        """Updates the shared weights of a group by `changes`.

        With `noise`, the variance by rounding of each, or None where unknown, these are the sums
        over all replicas, values with a tensor on each local device. Otherwise they are exchanged
        here.
        """
        if self._exchanges is not None:
            iterations: Any = self.outer.iterations
            iterations.assign(self._exchanges[group])
            self._exchanges.assign_add(tf.one_hot(group, len(self.groups), dtype=tf.int64))
        if noise is None:
            changes = [private.per_replica(of_replicas) for of_replicas in changes]
        extended = self.strategy.extended
        update = tf.autograph.experimental.do_not_convert(self._update_replica)
        extended.call_for_each_replica(update, args=(group, changes, noise))
        if group == len(self.groups) - 1:
            extended.average_statistics()

    def _update_replica(self, group, changes, noise):
        as_gradients = changes_as_gradients(self.selection.are_of_one_size)
        with self.views.shared_values(), as_gradients if noise is None else local_updates(noise):
            self.outer.apply(changes, [self._weights[i] for i in self.groups[group]])
