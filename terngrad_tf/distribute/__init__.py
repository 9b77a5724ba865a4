"""TernGrad under `tf.distribute`: the cross-device op and the strategy."""

from terngrad_tf.distribute.all_reduce import TernaryAllReduce
from terngrad_tf.distribute.statistics import GradientStatistics
from terngrad_tf.distribute.strategy import TernGradStrategy
from terngrad_tf.distribute.virtual_devices import local_devices
from terngrad_tf.distribute.wire import WIRES, Traffic

__all__ = [
    "WIRES",
    "GradientStatistics",
    "TernGradStrategy",
    "TernaryAllReduce",
    "Traffic",
    "local_devices",
]
