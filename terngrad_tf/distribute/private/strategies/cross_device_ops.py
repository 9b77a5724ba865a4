"""Base class of cross-device ops, with the parts that only a strategy can provide."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute.private.strategies.strategies import is_own, reduction_to_one_device


class ExactCrossDeviceOps(tf.distribute.CrossDeviceOps):
    """Reduces like the current strategy by default.

    A stock strategy reduces with its given op only, so an op for gradients must do everything else,
    too. The base class declares half of these methods privately.
    """

    def reduce_implementation(
        self,
        reduce_op: tf.distribute.ReduceOp,
        per_replica_value: Any,
        destinations: Any,
        options: Any,
    ) -> Any:
        return self._stock_ops().reduce_implementation(
            reduce_op, per_replica_value, destinations, options
        )

    def batch_reduce_implementation(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: Any,
    ) -> list[Any]:
        return self._stock_ops().batch_reduce_implementation(
            reduce_op, value_destination_pairs, options
        )

    def broadcast_implementation(self, tensor: tf.Tensor, destinations: Any) -> Any:
        return self._stock_ops().broadcast_implementation(tensor, destinations)

    def _gather_implementation(self, per_replica_value, destinations, axis, options):
        return self._stock_ops()._gather_implementation(
            per_replica_value, destinations, axis, options
        )

    def _all_reduce(self, reduce_op, value, replica_id, options):
        return self._stock_ops()._all_reduce(reduce_op, value, replica_id, options)

    def _stock_ops(self):
        extended = tf.distribute.get_strategy().extended
        # Outside its scope, a strategy's op cannot be found. On CPUs its op, a ring, is slow and
        # fails while a function creates variables.
        is_ours = getattr(extended, "_cross_device_ops", None) is self
        if is_ours and all("GPU" in device for device in extended.worker_devices):
            return extended._collective_ops
        return reduction_to_one_device()


def gradient_ops(strategy: tf.distribute.Strategy) -> Any:
    """Returns the op with which `strategy` reduces gradients specially, or None."""
    extended = strategy.extended
    if is_own(strategy):
        return extended.gradient_ops
    op = getattr(extended, "_cross_device_ops", None)
    return op if isinstance(op, ExactCrossDeviceOps) else None
