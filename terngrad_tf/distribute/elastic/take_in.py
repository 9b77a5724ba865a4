"""Callback that ends `fit` if workers wait to join."""

import contextlib
from typing import Any

import keras

from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.coordination import all_gather_object, run_on_chief
from terngrad_tf.distribute.elastic.join import Membership, NewcomersError
from terngrad_tf.distribute.strategy import TernGradStrategy


class TakeInWorkers(keras.callbacks.Callback):
    """Ends `fit` with `NewcomersError` after an epoch if workers wait to join.

    Pass it to `fit` on all processes, after the callback that saves, and restart the program after
    the error, as `run_supervised` does.

    Example:
    >>> def train(strategy, membership, model, batches, save):
    ...     model.fit(batches, epochs=9, callbacks=[save, TakeInWorkers(strategy, membership)])

    Args:
        strategy: the `TernGradStrategy` of the members.
        membership: `Membership`, from `join_cluster`.
    """

    runs_on_all_processes = True
    model: keras.Model

    def __init__(self, strategy: TernGradStrategy, membership: Membership) -> None:
        super().__init__()
        self._strategy = strategy
        self._membership = membership
        self._stack = contextlib.ExitStack()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Starts to look for waiting workers."""
        private.exit_after_fit(self.model, self._stack)
        self._newcomers = self._stack.enter_context(self._membership.watch())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Raises `NewcomersError` on all processes if the chief found waiting workers."""
        who = run_on_chief(self._strategy, "newcomers", self._newcomers)
        if who and epoch + 1 < self.params["epochs"]:
            self._stack.close()
            # An early exit must not discard messages that others still have to read.
            all_gather_object(self._strategy, "end", "ended", is_last=lambda values: True)
            raise NewcomersError(who, int(self.model.optimizer.iterations.numpy()))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Stops looking."""
        self._stack.close()
