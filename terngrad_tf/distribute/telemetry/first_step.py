"""Logs on the chief, after the first step, how replicas share a batch, and the traffic."""

import weakref
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import private
from terngrad_tf.distribute.communication.notices import tell
from terngrad_tf.distribute.private.collectives.local_weights import local_steps_optimizer

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


class FirstStep(keras.callbacks.Callback):
    """Logs once the shared batch and the traffic of several replicas."""

    model: keras.Model

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__()
        self._get_strategy: Any = weakref.ref(strategy)
        self._told_batches = self._told_traffic = False

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Logs the lines that are known after this step."""
        strategy = self._get_strategy()
        if strategy.num_replicas_in_sync > 1 and not self._told_batches:
            self._told_batches = True
            tell(self._batches(strategy.num_replicas_in_sync, strategy.num_processes))
        if strategy.num_processes > 1 and not self._told_traffic and strategy.traffic is not None:
            self._told_traffic = True
            tell(self._traffic(strategy.num_processes, strategy.traffic))

    def _batches(self, count, processes):
        where = f" in {processes} processes" if processes > 1 else ""
        optimizers = private.updating_optimizers(self.model.optimizer)
        rates = [float(tf.convert_to_tensor(one.learning_rate).numpy()) for one in optimizers]
        now = f" (now {', '.join(f'{rate:.3g}' for rate in rates)})" if rates else ""
        return (
            f"{count} replicas{where} share each batch; the learning rate is that of the whole"
            f" batch, and stays as it was given{now}"
        )

    def _traffic(self, processes, traffic):
        local = local_steps_optimizer(self.model.optimizer)
        each = "a step" if local is None else "an exchange"
        return (
            f"{processes} processes: each receives"
            f" {size(traffic.received_bytes)} {each} instead of {size(traffic.float32_bytes)},"
            f" by the wire {traffic.wire!r}"
        )


def size(num_bytes: float) -> str:
    """Returns a number of bytes as text with three digits.

    Example:
        >>> size(5_240_000)
        '5.24 MB'
    """
    unit = 0
    while num_bytes >= 999.5 and unit < len(_UNITS) - 1:
        num_bytes, unit = num_bytes / 1000, unit + 1
    return f"{num_bytes:.3g} {_UNITS[unit]}"
