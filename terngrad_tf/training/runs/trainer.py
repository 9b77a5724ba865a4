"""Trains a network on a data set: `train`."""

import dataclasses
import os
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.checkpoints import local_state
from terngrad_tf.distribute import Membership, run_on_chief
from terngrad_tf.distribute.exchange.traffic import PushTraffic, Traffic
from terngrad_tf.subspace import SnapshotCheckpoint
from terngrad_tf.training.configs.run_config import TrainConfig
from terngrad_tf.training.errors import UserError, as_user_error
from terngrad_tf.training.input.data import DatasetShard
from terngrad_tf.training.network import networks, pretrained
from terngrad_tf.training.optimization import local_steps, losses, optimizers, schedules
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage
from terngrad_tf.training.runs import cluster, saving, stages
from terngrad_tf.training.runs.run import fit, open_run
from terngrad_tf.training.storage import checkpoints, run_folder


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """Result of `train`.

    Args:
        step: number of steps done.
        checkpoint: path of the newest checkpoint.
        traffic: bytes per member in the last step, counted by the strategy; None if no step ran.
        is_chief: whether this process keeps the run's folder. Default True.
    """

    step: int
    checkpoint: str
    traffic: Traffic | PushTraffic | None
    is_chief: bool = True


def train(
    config: TrainConfig, membership: Membership | None = None, **cluster_options: Any
) -> TrainResult:
    """Trains until `config.max_steps`, and resumes an existing run in `train_dir`.

    A run that was stopped in any way and resumed has the same weights, bit for bit, as an
    uninterrupted run.

    In a cluster, every process must call it with the same options. Only the chief uses `train_dir`.
    `data_dir` either holds the same files on all processes, which share them, or different files on
    each process, which then reads all of its files. `batch_size` counts all replicas.

    With `membership`, workers may come and go: a call of `train` ends when workers wait to take
    part, or one is lost. For any number of workers, a step has `batch_size` examples, divided about
    evenly; `data_dir` must hold the same files everywhere. Steps, epochs and rates thus keep their
    meaning, and examples do not repeat within an epoch.

    Args:
        config: `TrainConfig`.
        membership: result of `join_cluster` for `train_dir`. Default: all workers of the cluster
            are required all the time.
        **cluster_options: `cluster_resolver` (default: `TF_CONFIG` if set, else a single process),
            `start_timeout` (default 600) and `token`, see `TernGradStrategy`.

    Returns:
        A `TrainResult`.

    Raises:
        UserError: an option, the data or the folder is unsuitable.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PreemptedError: SIGTERM asked this process, or another of the cluster, to stop; the run is
            saved.
        NewcomersError: workers wait to take part; the run is saved.
        PeerError: another process of the cluster failed, is gone, or was started differently.
    """
    with as_user_error():
        joined = _join(config, membership, cluster_options)
    with cluster.fail_together(joined.strategy):
        planned, source = _plan(joined)
        with as_user_error():
            built = _build(planned, joined.shares_batches)
        return _run(planned, source, built, membership)


@dataclasses.dataclass(frozen=True)
class _Built:
    """The network of a run and its state, before any weight is restored."""

    model: keras.Model
    learning_rate: Any
    average: StatisticsAverage
    snapshots: list[SnapshotCheckpoint]
    checkpoint: tf.train.Checkpoint


def _join(config, membership, cluster_options):
    """Returns the run as `stages.Joined`; its network may be the initial run's."""
    own = config.local_steps
    if membership is not None:
        cluster_options["cluster_resolver"] = membership.cluster_resolver
        if own.sync_seconds:
            raise UserError(
                "`sync_seconds` must be 0 where workers may come and go (`min_workers`). "
                f"Received: sync_seconds={own.sync_seconds:g}"
            )
    return stages.join(
        resolved(config),
        statistics_freq=max(1, own.exchanges(config.checkpoints.statistics_freq)),
        steps_per_exchange=max(1, own.sync_every),
        shares_batches=membership is not None,
        **cluster_options,
    )


def _plan(joined):
    """Returns the run as `stages.Planned`, and the source of its weights unless it resumes."""
    config, strategy = joined.config, joined.strategy
    cluster.compare_configs(config, strategy, joined.shares_batches)
    path = config.pretrained_model_checkpoint_path
    source, resumes = run_on_chief(
        strategy,
        "weights to start from",
        lambda: pretrained.find_start(path, config.train_dir),
    )
    planned = joined.plan(resolved(config, source))
    local_steps.check_length(planned.config)
    local_steps.tell_left_steps(planned.config, strategy)
    source = None if resumes else source
    pretrained.check_source(source, planned.config, planned.shard)
    return planned, source


def _build(planned, every_process):
    """Returns the network and its state. `every_process`: see `SnapshotCheckpoint`."""
    snapshots = _snapshots(planned.config, planned.shard.num_examples, every_process)
    with planned.strategy.scope():
        model, learning_rate = build_model(planned.config, planned.shard)
        average = StatisticsAverage(model)
    checkpoint = tf.train.Checkpoint(
        model=model,
        random=networks.random_states(model),
        **_optimizer_state(model.optimizer),
        **average.saved(),
    )
    return _Built(model, learning_rate, average, snapshots, checkpoint)


def _run(planned, source, built, membership):
    """Trains in the run's folder."""
    config, strategy, shard = planned.config, planned.strategy, planned.shard
    model, average, checkpoint = built.model, built.average, built.checkpoint
    with open_run(
        config,
        strategy,
        shard,
        model,
        model.variables + local_state.shared_variables(model.optimizer) + average.variables,
        membership,
        network=networks.network_metadata(config, shard),
        identity=config.identity(),
        checkpoint=checkpoint,
        start=lambda: pretrained.restore_source(source, config, model, checkpoint, average),
    ) as run:
        local_state.scatter_state(model.optimizer)
        saving.copy_start(run)
        traffic = local_steps.mean_traffic(strategy, model.optimizer)
        if not run.is_finished:
            fit(
                run,
                learning_rate=built.learning_rate,
                traffic=traffic,
                log_epochs=config.epochs is not None,
                more_callbacks=built.snapshots,
                average=average,
            )
        newest = cluster.finish(strategy, run.manager)
    step = checkpoints.step_of(newest)
    return TrainResult(step, newest, traffic(step - 1), strategy.is_chief)


def resolved(config: TrainConfig, source: pretrained.Source | None = None) -> TrainConfig:
    """Returns the configuration with a network and its default values for missing options.

    Without a source, a configuration that needs its network is returned unchanged.
    """
    if config.model.net is None:
        if source is None:
            return config
        _, run = source
        size = config.model.image_size or run["model"]["image_size"]
        config = config.changed(net=run["model"]["net"], image_size=size)
    return dataclasses.replace(config, model=config.model.resolved())


def _snapshots(config, num_examples, every_process):
    """Returns a list of at most one callback that keeps weight snapshots."""
    if not config.snapshots.are_taken:
        return []
    return [
        SnapshotCheckpoint(
            os.path.join(config.train_dir, run_folder.SNAPSHOT_FOLDER),
            start_epoch=config.snapshots.start_epoch,
            per_epoch=config.snapshots.per_epoch,
            every_steps=config.snapshots.every_steps,
            keep_max=config.snapshots.keep_max,
            # `fit` sees the whole run as one epoch.
            steps_per_epoch=num_examples / config.data.batch_size,
            # The run may have stopped before its first checkpoint.
            starts_over=True,
            every_process=every_process,
        )
    ]


def build_model(config: TrainConfig, shard: DatasetShard) -> tuple[keras.Model, Any]:
    """Builds a compiled network and its learning rate; `config` is `resolved`."""
    model = networks.build_network(config, shard)
    own = config.optimizer
    steps_per_epoch = shard.num_examples / config.data.batch_size
    learning_rate = schedules.build_schedule(
        own, max_steps=config.max_steps, steps_per_epoch=steps_per_epoch
    )
    steps = config.local_steps
    optimizer = optimizers.build_optimizer(
        own.name, learning_rate, own.momentum, own.loss_scale, averages=not steps.are_taken
    )
    if steps.are_taken:
        optimizer = optimizers.build_local_steps(
            *(optimizer, steps.sync_every or None, steps.fragments),
            *(steps.outer_learning_rate, steps.resolved_outer_momentum),
            sync_seconds=steps.sync_seconds or None,
            overlap=steps.overlap,
            alpha=steps.overlap_alpha,
        )
    if config.model.mixed_precision and own.loss_scale is None:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    local_state.keep_statistics(optimizer, model)
    model.compile(
        optimizer=optimizer,
        # Both are known here.
        **losses.compile_arguments(config.model.net, config.model.label_smoothing),  # pyright: ignore[reportArgumentType]
        # XLA omits the strategy's reduction if every device is a GPU.
        jit_compile=False,  # pyright: ignore[reportArgumentType] (its type is that of "auto")
        auto_scale_loss=False,
    )
    return model, learning_rate


def _optimizer_state(optimizer):
    """Returns arguments of `tf.train.Checkpoint`; the loss scaler's variables are apart."""
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return {"optimizer": optimizer}
    inner = optimizer.inner_optimizer
    num_own = len(optimizer.variables) - len(inner.variables)
    own = [variable.value for variable in optimizer.variables[:num_own]]
    return {"optimizer": inner, "loss_scaling": own}
