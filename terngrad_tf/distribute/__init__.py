"""TernGrad under `tf.distribute`: the cross-device op, the strategy and what clusters need.

Names are loaded at their first use: a program that only prints its help does not wait for
TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

from terngrad_tf import releases

if TYPE_CHECKING:  # what editors read
    from terngrad_tf.distribute.abs_adam import AbsAdam
    from terngrad_tf.distribute.all_reduce import TernaryAllReduce
    from terngrad_tf.distribute.cluster.cluster_options import ClusterOptions
    from terngrad_tf.distribute.cluster.exits import exit_on_peer_error
    from terngrad_tf.distribute.cluster.resolvers import (
        cluster_from_hosts,
        cluster_from_rank_table,
        workers_only,
    )
    from terngrad_tf.distribute.cluster.tf_config import cluster_from_tf_config
    from terngrad_tf.distribute.communication.coordination import (
        all_gather_object,
        run_on_all,
        run_on_chief,
    )
    from terngrad_tf.distribute.communication.failures import peer_errors
    from terngrad_tf.distribute.communication.peers import PeerError, propagate_errors
    from terngrad_tf.distribute.communication.step_agreement import StepAgreement
    from terngrad_tf.distribute.consistency.broadcast import broadcast_variables
    from terngrad_tf.distribute.consistency.equalize import equalize_variables
    from terngrad_tf.distribute.consistency.handshake import compare_processes
    from terngrad_tf.distribute.elastic.join import Membership, NewcomersError, join_cluster
    from terngrad_tf.distribute.elastic.supervised import run_supervised
    from terngrad_tf.distribute.elastic.take_in import TakeInWorkers
    from terngrad_tf.distribute.exchange.quantization import Quantization
    from terngrad_tf.distribute.exchange.traffic import Traffic
    from terngrad_tf.distribute.exchange.wires import WIRES
    from terngrad_tf.distribute.local_sgd.local_steps import DiLoCo, local_steps_optimizer
    from terngrad_tf.distribute.strategy import TernGradStrategy
    from terngrad_tf.distribute.telemetry.callback import Telemetry
    from terngrad_tf.distribute.telemetry.measurements import Measurements, StepTelemetry
    from terngrad_tf.distribute.telemetry.statistics import GradientStatistics
    from terngrad_tf.distribute.telemetry.stragglers import StragglerMonitor
    from terngrad_tf.distribute.virtual_devices import local_devices
    from terngrad_tf.distribute.wire_selection.advice import Advice, advise

_ORIGINS = {
    "AbsAdam": "abs_adam",
    "Advice": "wire_selection.advice",
    "ClusterOptions": "cluster.cluster_options",
    "DiLoCo": "local_sgd.local_steps",
    "GradientStatistics": "telemetry.statistics",
    "Measurements": "telemetry.measurements",
    "Membership": "elastic.join",
    "NewcomersError": "elastic.join",
    "PeerError": "communication.peers",
    "Quantization": "exchange.quantization",
    "StepAgreement": "communication.step_agreement",
    "StepTelemetry": "telemetry.measurements",
    "StragglerMonitor": "telemetry.stragglers",
    "TakeInWorkers": "elastic.take_in",
    "Telemetry": "telemetry.callback",
    "TernGradStrategy": "strategy",
    "TernaryAllReduce": "all_reduce",
    "Traffic": "exchange.traffic",
    "WIRES": "exchange.wires",
    "advise": "wire_selection.advice",
    "all_gather_object": "communication.coordination",
    "broadcast_variables": "consistency.broadcast",
    "cluster_from_hosts": "cluster.resolvers",
    "cluster_from_rank_table": "cluster.resolvers",
    "cluster_from_tf_config": "cluster.tf_config",
    "compare_processes": "consistency.handshake",
    "equalize_variables": "consistency.equalize",
    "exit_on_peer_error": "cluster.exits",
    "join_cluster": "elastic.join",
    "local_devices": "virtual_devices",
    "local_steps_optimizer": "local_sgd.local_steps",
    "peer_errors": "communication.failures",
    "propagate_errors": "communication.peers",
    "run_on_all": "communication.coordination",
    "run_on_chief": "communication.coordination",
    "run_supervised": "elastic.supervised",
    "workers_only": "cluster.resolvers",
}

__all__ = [*_ORIGINS]  # pyright: ignore[reportUnsupportedDunderAll] (one list is enough)


def __getattr__(name: str) -> Any:
    if name in _ORIGINS:
        with releases.explained():
            module = importlib.import_module(f"terngrad_tf.distribute.{_ORIGINS[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'terngrad_tf.distribute' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
