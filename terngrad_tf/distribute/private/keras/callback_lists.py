"""Keras' lists of callbacks in a cluster: the chief's progress bar and first messages."""

from typing import Any

import keras

from terngrad_tf.distribute.private.patches import patch
from terngrad_tf.distribute.private.strategies.strategies import is_own


class _RestoreOnly(keras.callbacks.Callback):
    """Replaces `BackupAndRestore` on processes that do not write: it restores on all."""

    def __init__(self, backup: Any) -> None:
        super().__init__()
        self._backup = backup

    def on_train_begin(self, logs: Any = None) -> None:
        """Restores before the first step; the chief writes afterwards."""
        self._backup.set_model(self.model)
        self._backup.on_train_begin(logs)


@patch(keras.callbacks.CallbackList, "__init__")
def _show_on_chief(
    stock: Any,
    self: Any,
    callbacks: Any = None,
    add_history: bool = False,
    add_progbar: bool = False,
    model: Any = None,
    **params: Any,
) -> None:
    """Lets only one process show progress, unless `verbose` is given, and write to a shared file.

    Keras creates the progress bar here, next to the user's callbacks.
    """
    strategy = getattr(model, "distribute_strategy", None)
    is_ours = strategy is not None and is_own(strategy)
    if is_ours and not strategy.is_chief and params.get("verbose") == "auto":
        add_progbar, params["verbose"] = False, 0
    calls = strategy.extended.calls if is_ours else None
    if calls is not None and callbacks and calls.left_out:
        left_out = {id(callback) for callback in calls.left_out}
        callbacks = [
            _RestoreOnly(callback) if id(callback) in left_out else callback
            for callback in keras.tree.flatten(callbacks)
            if id(callback) not in left_out
            or isinstance(callback, keras.callbacks.BackupAndRestore)
        ]
    stock(self, callbacks, add_history, add_progbar, model, **params)
    # Only `fit` keeps a history.
    if is_ours and add_history and params.get("verbose") and strategy.is_chief:
        first = strategy.extended.first_step
        first.set_model(model)
        first.set_params(params)
        # Before the bar, whose line it would break.
        self.callbacks.insert(0, first)
