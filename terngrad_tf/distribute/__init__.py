"""TernGrad under `tf.distribute`: the cross-device op and the strategy."""

from terngrad_tf.distribute.all_reduce import TernaryAllReduce
from terngrad_tf.distribute.cluster import (
    cluster_from_hosts,
    cluster_from_rank_table,
)
from terngrad_tf.distribute.handshake import compare_hosts
from terngrad_tf.distribute.peers import PeerError, peer_errors
from terngrad_tf.distribute.statistics import GradientStatistics
from terngrad_tf.distribute.strategy import TernGradStrategy
from terngrad_tf.distribute.virtual_devices import local_devices
from terngrad_tf.distribute.waiting import WaitReport
from terngrad_tf.distribute.wire import WIRES, Traffic

__all__ = [
    "WIRES",
    "GradientStatistics",
    "PeerError",
    "TernGradStrategy",
    "TernaryAllReduce",
    "Traffic",
    "WaitReport",
    "cluster_from_hosts",
    "cluster_from_rank_table",
    "compare_hosts",
    "local_devices",
    "peer_errors",
]
