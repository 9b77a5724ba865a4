"""The callback that ends `fit` where workers wait to take part."""

import contextlib
from typing import Any

import keras

from terngrad_tf.distribute.communication.coordination import all_gather_object, run_on_chief
from terngrad_tf.distribute.elastic.join import Membership, NewcomersError
from terngrad_tf.distribute.strategy import TernGradStrategy


class TakeInWorkers(keras.callbacks.Callback):
    """Ends `fit` with `NewcomersError`, after an epoch, where workers wait to take part.

    To be given to `fit` on all processes, after the callback that saves. The program is then to be
    started again, as `run_supervised` does.

    Example:
    >>> def train(strategy, membership, model, batches, save):
    ...     model.fit(batches, epochs=9, callbacks=[save, TakeInWorkers(strategy, membership)])

    Args:
        strategy: the `TernGradStrategy` of the members.
        membership: `Membership`, from `join_cluster`.
    """

    def __init__(self, strategy: TernGradStrategy, membership: Membership) -> None:
        super().__init__()
        self._strategy = strategy
        self._membership = membership
        self._stack = contextlib.ExitStack()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begins to look for them."""
        self._newcomers = self._stack.enter_context(self._membership.watch())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Asks the chief, who looks."""
        who = run_on_chief(self._strategy, "newcomers", self._newcomers)
        if who and epoch + 1 < self.params["epochs"]:
            self._stack.close()
            # The first to end must not take the others' messages along.
            all_gather_object(self._strategy, "end", "ended", is_last=lambda values: True)
            raise NewcomersError(who, int(self.model.optimizer.iterations.numpy()))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Looks no longer."""
        self._stack.close()
