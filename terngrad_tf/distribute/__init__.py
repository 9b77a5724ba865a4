"""TernGrad under `tf.distribute`: the cross-device op and the strategy."""

from terngrad_tf.distribute.agreement import on_chief, on_each_host, share
from terngrad_tf.distribute.all_reduce import TernaryAllReduce
from terngrad_tf.distribute.broadcast import broadcast_variables
from terngrad_tf.distribute.cluster import (
    cluster_from_hosts,
    cluster_from_rank_table,
    workers_only,
)
from terngrad_tf.distribute.exits import exit_on_peer_error
from terngrad_tf.distribute.handshake import compare_hosts
from terngrad_tf.distribute.peers import PeerError, peer_errors, told_to_peers
from terngrad_tf.distribute.statistics import GradientStatistics
from terngrad_tf.distribute.strategy import TernGradStrategy
from terngrad_tf.distribute.tf_config import cluster_from_tf_config
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
    "broadcast_variables",
    "cluster_from_hosts",
    "cluster_from_rank_table",
    "cluster_from_tf_config",
    "compare_hosts",
    "exit_on_peer_error",
    "local_devices",
    "on_chief",
    "on_each_host",
    "peer_errors",
    "share",
    "told_to_peers",
    "workers_only",
]
