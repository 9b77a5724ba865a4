"""Data-parallel training with ternary gradients, in one process or many, with stock `model.fit`."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from terngrad_tf.common import tokens
from terngrad_tf.common.arguments import check
from terngrad_tf.distribute import private, virtual_devices
from terngrad_tf.distribute.all_reduce import TernaryAllReduce
from terngrad_tf.distribute.cluster import cluster_size, rendezvous, tf_config
from terngrad_tf.distribute.cluster.cluster_options import ClusterOptions
from terngrad_tf.distribute.communication import failures, peers, watchdog
from terngrad_tf.distribute.consistency import broadcast, calls, feeding, handshake, seeds
from terngrad_tf.distribute.exchange.quantization import Quantization
from terngrad_tf.distribute.exchange.traffic import Traffic
from terngrad_tf.distribute.telemetry import stragglers
from terngrad_tf.distribute.telemetry.first_step import FirstStep
from terngrad_tf.distribute.telemetry.measurements import Measurements

# Strategies' collectives must not meet under one key.
_KEY_RANGE = 1_000_000
_key_ranges = itertools.count(1)


class TernGradStrategy(tf.distribute.Strategy):
    """Trains replicas on several devices or processes and exchanges ternary gradients.

    A single process runs `num_nodes` replicas on the local devices: evenly on the GPUs, the first
    replicas on the first GPU, or all on the CPU. The replicas of one device share one copy of the
    weights, and their function is traced once. If `TF_CONFIG` or a cluster resolver describes a
    cluster, every process makes the same strategy and runs the same program; each holds `num_nodes`
    replicas, and packed words travel between the processes.

    After every step all replicas hold the same weights and batch-norm statistics, bit for bit, so
    any process may save. All processes call `fit`, `evaluate` and `predict`, and compare their
    arguments first. They may share data in [several ways](../../data_on_machines.md).

    Example:
    >>> strategy = TernGradStrategy(num_nodes=1)
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.layers.Dense(1)])
    ...     model.compile(optimizer="adam", loss="mse")

    Args:
        num_nodes: replicas of this process. Default: one per GPU, or one on the CPU.
        grad_bits: bits of a gradient's element, see `Quantization`. Set 32 to compare with float
            gradients, 2 to 8 if links are fast enough for finer codes, or "auto" to choose bits and
            wire by measurements before the first step, see `TernaryAllReduce`. Default 1, ternary.
        quantization: `Quantization`, the full rule of rounding, instead of `grad_bits` or beside
            "auto", such as the rule of TernGrad's paper, layers or steps that keep float gradients,
            a budget of bits, or other random bits. Default `Quantization()`.
        wire: how codes travel, see `TernaryAllReduce`. Name one if you know your links better than
            "auto", the default.
        sparse_as_dense: how the gradients of embeddings travel, see `TernaryAllReduce`. Set False
            if their rows must stay floats. Default "auto": as rounded rows or as whole rounded
            tensors, by bytes.
        telemetry_freq: steps between measurements of the time of exchanges and the error of codes,
            see `TernaryAllReduce`. Default 0: no measurements.
        statistics_freq: steps between records of `gradient_statistics`, the scales and codes of
            each variable. Default 0 (never).
        num_gpus: GPUs to use, at most the available ones. Set 0 to train on the CPU of a machine
            with GPUs. Default: all.
        cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver`, if a scheduler
            describes the cluster. Default: `TF_CONFIG` if set, else a single process.
        cluster_options: `ClusterOptions` for rendezvous and communication, such as timeouts, NCCL
            or a token. Default `ClusterOptions()`.

    Raises:
        ValueError: an argument is out of range, or this process is not a worker of the cluster.
        RuntimeError: in a cluster, TensorFlow fixed its devices before the strategy was made.
        PeerError: another process of the cluster is missing or was started differently.

    Source: Wen et al., TernGrad, NIPS 2017 (arXiv 1705.07878).
    """

    def __init__(
        self,
        num_nodes: int | None = None,
        *,
        grad_bits: int | str | None = None,
        quantization: Quantization | None = None,
        wire: str = "auto",
        sparse_as_dense: bool | str = "auto",
        telemetry_freq: int = 0,
        statistics_freq: int = 0,
        num_gpus: int | None = None,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
        cluster_options: ClusterOptions | None = None,
    ) -> None:
        meeting = ClusterOptions() if cluster_options is None else cluster_options
        rule = "must be a `ClusterOptions`"
        check(isinstance(meeting, ClusterOptions), "cluster_options", rule, meeting)
        token = tokens.token_from_environment() if meeting.token is None else meeting.token
        gradient_ops = TernaryAllReduce(
            grad_bits=grad_bits,
            quantization=quantization,
            wire=wire,
            sparse_as_dense=sparse_as_dense,
            telemetry_freq=telemetry_freq,
            statistics_freq=statistics_freq,
        )
        self._collective_key_base = next(_key_ranges) * _KEY_RANGE
        if cluster_resolver is None:
            cluster_resolver = tf_config.cluster_from_tf_config()
        cluster_size.check_size(meeting.num_processes, cluster_resolver)
        in_cluster = bool(cluster_resolver.cluster_spec().as_dict())
        devices = virtual_devices.local_devices(num_nodes, num_gpus)
        physical = list(dict.fromkeys(devices))
        measures = not (in_cluster and any("GPU" in device for device in devices))
        rule = "must be a number on the GPUs of a cluster, whose arithmetic is not measured"
        check(measures or not gradient_ops.options.chooses_mode, "grad_bits", rule, grad_bits)
        communication = _chosen_communication(meeting.communication, physical)
        self.tasks = peers.tasks_of(cluster_resolver) if in_cluster else None
        self.start_timeout = meeting.start_timeout
        if self.tasks is not None:
            _meet(self.tasks, self.start_timeout, token)
            with failures.peer_errors(self.tasks):
                extended = private.TernGradClusterExtended(
                    self,
                    cluster_resolver,
                    physical,
                    len(devices),
                    private.communication_options(communication, meeting.communication_timeout),
                    gradient_ops,
                    self.start_timeout,
                    functools.partial(broadcast.broadcast_variables, self),
                )
        else:
            extended = private.TernGradLocalExtended(self, physical, len(devices), gradient_ops)
        super().__init__(extended)
        private.watch_scope(self)
        watchdog.watch(self.tasks)
        if self.num_processes > 1:
            extended.calls = calls.Calls(self)
        extended.first_step = FirstStep(self)
        self.sync_timer = stragglers.timer_of(self)
        metadata = handshake.strategy_metadata(
            gradient_ops, len(devices), self.num_processes, communication
        )
        handshake.compare_processes(self, "strategies", metadata)
        if isinstance(extended, private.TernGradClusterExtended) and self.num_processes > 1:
            seeds.agree_on_seeds(self)
            extended.feeding = feeding.Feeding(self)

    @property
    def traffic(self) -> Traffic | None:
        """Bytes that each replica receives per step, as `Traffic`; None before the first step."""
        return self.extended.gradient_ops.traffic

    def traffic_of(
        self, step: int, groups: Sequence[Sequence[int]] | None = None
    ) -> Traffic | None:
        """Returns the `Traffic` of one step, see `TernaryAllReduce.traffic_of`."""
        return self.extended.gradient_ops.traffic_of(step, groups)

    @property
    def telemetry(self) -> Measurements:
        """`Measurements` of the cost and error of exchanges, see `telemetry_freq`."""
        return self.extended.gradient_ops.telemetry

    @property
    def wire_choices(self) -> list[str]:
        """The wires that "auto" chose, with reasons, see `TernaryAllReduce.wire_choices`."""
        return self.extended.gradient_ops.wire_choices

    @property
    def gradient_statistics(self) -> Any:
        """`{variable path: GradientStatistics}`, see `TernaryAllReduce.gradient_statistics`."""
        return self.extended.gradient_ops.gradient_statistics

    @property
    def is_chief(self) -> bool:
        """True if this process should write checkpoints and logs."""
        return self.extended.is_chief

    @property
    def num_processes(self) -> int:
        """Processes of the cluster; 1 without one."""
        group = self.extended.process_group
        return group.size if group else 1

    @property
    def process_index(self) -> int:
        """Index of this process in the cluster, from 0."""
        group = self.extended.process_group
        return group.rank if group else 0

    def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
        """Like `tf.distribute.Strategy.reduce`; also measures the wait for other processes."""
        reduce = functools.partial(super().reduce, reduce_op, value, axis)
        # Before every step TensorFlow reduces the number of processes that have examples left.
        if self.sync_timer is None or not isinstance(value, tf.Tensor):
            return reduce()
        return self.sync_timer.measure([value], reduce)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: Any = None,
    ) -> Any:
        """Like `tf.distribute.Strategy.run`; runs steps of Keras as `run_padded` does."""
        step = private.in_keras_step()
        if step is None or kwargs:
            return super().run(fn, args=args, kwargs=kwargs, options=options)
        return step.run(self, fn, args)

    def run_padded(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), *, returns_rows: bool = False
    ) -> Any:
        """Runs `fn` on all replicas, also on those that have no examples.

        The last batch of an epoch may not divide evenly. A replica without examples computes on
        another's or on zeros, which its optimizers, metrics and batch norm ignore. Keras losses
        (and `compute_loss`) are weighted by the replicas' numbers of examples, so that their sum
        is the mean over the whole batch.

        Args:
            fn: function of batches, as for `run`.
            args: arguments of `fn`, structures of batches of a distributed data set; the first
                tensor with a batch axis has one row per example.
            returns_rows: True if results have a batch axis, too; rows of zeros are removed.

        Returns:
            As `run`.
        """
        with private.keras_step(None):
            return self.extended.run_padded(fn, args, returns_rows)


def _chosen_communication(communication, devices):
    """Returns one of `COMMUNICATIONS`; "auto" depends on the local devices."""
    on_gpus = all("GPU" in device for device in devices)
    if communication == "auto":
        return "nccl" if on_gpus and len(devices) > 1 else "ring"
    rule = "must be 'ring' or 'auto' where replicas are on a CPU, since NCCL is for GPUs"
    check(on_gpus or communication == "ring", "communication", rule, communication)
    return communication


def _meet(tasks, timeout, token):
    """Waits for the other processes, unless this one has joined them."""
    if private.cluster_is_joined():
        return
    if private.devices_are_initialized():
        raise RuntimeError(
            "In a cluster, make `TernGradStrategy` before TensorFlow computes anything, which fixes"
            " the process's devices. Move `strategy = TernGradStrategy(...)` to the program's"
            " beginning, above every tf.data pipeline, tensor, variable, model and"
            " `tf.config.list_logical_devices()`."
        )
    # After `join_cluster` the peers may have continued.
    if rendezvous.joined_tasks() != tasks:
        rendezvous.wait_for_peers(tasks, timeout, token)
