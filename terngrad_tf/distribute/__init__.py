"""TernGrad under `tf.distribute`: the cross-device op and the strategy."""

from terngrad_tf.distribute.abs_adam import AbsAdam
from terngrad_tf.distribute.advice import Advice, advise
from terngrad_tf.distribute.all_reduce import TernaryAllReduce
from terngrad_tf.distribute.broadcast import broadcast_variables
from terngrad_tf.distribute.cluster import (
    cluster_from_hosts,
    cluster_from_rank_table,
    workers_only,
)
from terngrad_tf.distribute.cluster_options import ClusterOptions
from terngrad_tf.distribute.coordination import all_gather_object, run_on_all, run_on_chief
from terngrad_tf.distribute.elastic import Membership, NewcomersError, join_cluster
from terngrad_tf.distribute.equalize import equalize_variables
from terngrad_tf.distribute.exits import exit_on_peer_error
from terngrad_tf.distribute.handshake import compare_processes
from terngrad_tf.distribute.local_steps import DiLoCo, local_steps_optimizer
from terngrad_tf.distribute.peers import PeerError, peer_errors, propagate_errors
from terngrad_tf.distribute.quantization import Quantization
from terngrad_tf.distribute.statistics import GradientStatistics
from terngrad_tf.distribute.step_agreement import StepAgreement
from terngrad_tf.distribute.stragglers import StragglerMonitor
from terngrad_tf.distribute.strategy import TernGradStrategy
from terngrad_tf.distribute.supervised import run_supervised
from terngrad_tf.distribute.take_in import TakeInWorkers
from terngrad_tf.distribute.telemetry import Measurements, StepTelemetry
from terngrad_tf.distribute.telemetry_callback import Telemetry
from terngrad_tf.distribute.tf_config import cluster_from_tf_config
from terngrad_tf.distribute.traffic import Traffic
from terngrad_tf.distribute.virtual_devices import local_devices
from terngrad_tf.distribute.wires import WIRES

__all__ = [
    "WIRES",
    "AbsAdam",
    "Advice",
    "ClusterOptions",
    "DiLoCo",
    "GradientStatistics",
    "Measurements",
    "Membership",
    "NewcomersError",
    "PeerError",
    "Quantization",
    "StepAgreement",
    "StepTelemetry",
    "StragglerMonitor",
    "TakeInWorkers",
    "Telemetry",
    "TernGradStrategy",
    "TernaryAllReduce",
    "Traffic",
    "advise",
    "all_gather_object",
    "broadcast_variables",
    "cluster_from_hosts",
    "cluster_from_rank_table",
    "cluster_from_tf_config",
    "compare_processes",
    "equalize_variables",
    "exit_on_peer_error",
    "join_cluster",
    "local_devices",
    "local_steps_optimizer",
    "peer_errors",
    "propagate_errors",
    "run_on_all",
    "run_on_chief",
    "run_supervised",
    "workers_only",
]
