"""Starts the processes of a cluster, watches them, and ends them together: `terngrad run`.

Imports no TensorFlow.
"""

from terngrad_tf.launcher.agent import Agent
from terngrad_tf.launcher.coordinator import Coordinator, Plan
from terngrad_tf.launcher.hosts import Host, parse_hosts
from terngrad_tf.launcher.nodes import LocalNode, LostError, SshNode
from terngrad_tf.launcher.remote_nodes import SocketNode, join, listen

__all__ = [
    "Agent",
    "Coordinator",
    "Host",
    "LocalNode",
    "LostError",
    "Plan",
    "SocketNode",
    "SshNode",
    "join",
    "listen",
    "parse_hosts",
]
