"""Trains a network on a data set: `train`."""

import dataclasses
import os

import keras
import tensorflow as tf

from terngrad_tf import models
from terngrad_tf.distribute import run_on_chief
from terngrad_tf.subspace import SnapshotCheckpoint
from terngrad_tf.training import (
    cluster,
    objective,
    optimizers,
    pretrained,
    schedules,
    session,
)
from terngrad_tf.training.errors import UserError, as_user_error

SNAPSHOT_FOLDER = "checkpoint_pca"


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` leaves.

    Args:
        step: steps done.
        checkpoint: path of the newest checkpoint.
        traffic: bytes per worker in the last step as the strategy counted them; None where no step
            ran.
        is_chief: whether this process keeps the run's folder. Default True.
    """

    step: int
    checkpoint: str
    traffic: object
    is_chief: bool = True


def train(options, **cluster_options):
    """Trains until `options.max_steps`, going on where a run in `train_dir` stopped.

    A run that is stopped, by whatever means, and resumed has the weights, bit for bit, of the run
    that was not stopped.

    In a cluster every process calls it with the same options. The chief alone uses `train_dir`.
    `data_dir` either holds the same files everywhere, of which each process reads a share, or files
    of its own on each, which it reads whole. `batch_size` is that of all workers together.

    Args:
        options: `TrainOptions`.
        **cluster_options: `cluster_resolver` (default: `TF_CONFIG` if it is set, else a single
            process) and `start_timeout` (default 600), as for `TernGradStrategy`.

    Returns:
        A `TrainResult`.

    Raises:
        UserError: an option, the data or the folder does not fit.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PeerError: another process of the cluster failed, is gone, or was started differently.
    """
    with as_user_error():
        options = resolved(options)
        strategy = session.make_strategy(options, lambda: dataset.num_examples, **cluster_options)
    with cluster.failing_together(strategy):
        cluster.check_options(options, strategy)
        pretrained_run = run_on_chief(
            strategy, "weights to start from", lambda: find_pretrained(options)
        )
        options = resolved(options, pretrained_run)
        dataset = session.describe(options, strategy)
        options = options.with_steps(dataset.num_examples)
        check_pretrained(options, dataset, pretrained_run)
        with as_user_error():
            snapshots = _snapshots(options, dataset.num_examples)
            with strategy.scope():
                model, learning_rate = build(options, dataset)
        return _run(options, strategy, dataset, model, learning_rate, snapshots, pretrained_run)


def resolved(options, pretrained_run=None):
    """The options with a network and its own values where nothing was given.

    Args:
        options: `TrainOptions`.
        pretrained_run: from `find_pretrained`. Default None: options that wait for the network of
            such a run are returned as they are.

    Raises:
        ValueError: the network is unknown.
    """
    if options.net is None:
        if pretrained_run is None:
            return options
        _, run = pretrained_run
        size = options.image_size or run["model"]["image_size"]
        options = dataclasses.replace(options, net=run["model"]["net"], image_size=size)
    usual_size, _ = models.input_shape(options.net)
    smoothing = options.label_smoothing
    return dataclasses.replace(
        options,
        image_size=options.image_size or usual_size,
        label_smoothing=models.label_smoothing(options.net) if smoothing is None else smoothing,
    )


def find_pretrained(options):
    """(checkpoint, description of its run) to start from, or None."""
    path = options.pretrained_model_checkpoint_path
    return pretrained.find(path) if path else None


def check_pretrained(options, dataset, pretrained_run):
    """Raises UserError where the run to start from, if any, does not fit."""
    if pretrained_run is not None:
        _, run = pretrained_run
        pretrained.check(run, options, num_classes=dataset.num_classes, channels=dataset.channels)


def _snapshots(options, num_examples):
    """Callbacks, one or none, that keep weight snapshots."""
    if options.snapshot_per_epoch is None and options.snapshot_every_steps is None:
        return []
    return [
        SnapshotCheckpoint(
            os.path.join(options.train_dir, SNAPSHOT_FOLDER),
            start_epoch=options.snapshot_start_epoch,
            per_epoch=options.snapshot_per_epoch,
            every_steps=options.snapshot_every_steps,
            keep_max=options.snapshot_keep_max,
            # `fit` sees the whole run as one epoch.
            steps_per_epoch=num_examples / options.batch_size,
            # The folder is this run's, which may have been stopped before its first checkpoint.
            starts_over=True,
        )
    ]


def build(options, dataset):
    """A compiled network and its learning rate.

    Args:
        options: `TrainOptions`, as `resolved` returns them.
        dataset: `data.Subset`.

    Returns:
        Pair of a `keras.Model` and a `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
        ValueError: an option is out of range.
    """
    model = session.build_network(options, dataset)
    learning_rate = schedules.build(
        options.learning_rate_decay_type,
        options.initial_learning_rate,
        max_steps=options.max_steps,
        steps_per_epoch=dataset.num_examples / options.batch_size,
        num_epochs_per_decay=options.num_epochs_per_decay,
        decay_factor=options.learning_rate_decay_factor,
        warmup_epochs=options.warmup_epochs,
        decay_epochs=options.decay_epochs,
        optimizer=options.optimizer,
    )
    optimizer = optimizers.build(
        options.optimizer, learning_rate, options.momentum, options.loss_scale
    )
    if options.mixed_precision and options.loss_scale is None:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer,
        **objective.compile_arguments(options.net, options.label_smoothing),
        # XLA leaves out the strategy's reduction where every device is a GPU.
        jit_compile=False,
        auto_scale_loss=False,
    )
    return model, learning_rate


def _optimizer_state(optimizer):
    """Arguments of `tf.train.Checkpoint`: as without loss scaling, whose variables come beside."""
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return {"optimizer": optimizer}
    inner = optimizer.inner_optimizer
    num_own = len(optimizer.variables) - len(inner.variables)
    own = [variable.value for variable in optimizer.variables[:num_own]]
    return {"optimizer": inner, "loss_scaling": own}


def _run(options, strategy, dataset, model, learning_rate, snapshots, pretrained_run):
    checkpoint = tf.train.Checkpoint(
        model=model, random=session.random_states(model), **_optimizer_state(model.optimizer)
    )
    with cluster.opened(
        options,
        strategy,
        checkpoint,
        [variable.value for variable in model.variables + model.optimizer.variables],
        lambda: start(options, model, checkpoint, pretrained_run),
        options.identity() | cluster.identity(strategy, dataset),
        max_steps=options.max_steps,
        steps_per_epoch=dataset.num_examples / options.batch_size,
        model=model_metadata(options, dataset),
    ) as (first_step, manager):
        if first_step < options.max_steps:
            session.fit(
                options,
                strategy,
                model,
                dataset,
                manager,
                first_step,
                learning_rate=learning_rate,
                log_epochs=options.epochs is not None,
                more=lambda writer: snapshots,
            )
        newest = cluster.finish(strategy, manager)
        step = session.step_of(newest)
        return TrainResult(step, newest, strategy.traffic_of(step - 1), strategy.is_chief)


def model_metadata(options, dataset):
    """What `run_folder` keeps of a network, for evaluation; the arguments are those of `build`."""
    return {
        "net": options.net,
        "num_classes": dataset.num_classes,
        "image_size": options.image_size,
        "channels": dataset.channels,
    }


def start(options, model, checkpoint, pretrained_run):
    """Takes the weights of another run, if any, and returns the step to go on from."""
    if pretrained_run is None:
        return 0
    path, run = pretrained_run
    if options.fine_tune:
        pretrained.restore_features(path, run, model)
        return 0
    step = pretrained.restore_all(path, run, model, checkpoint)
    if step >= options.max_steps:
        raise UserError(
            "`max_steps` must be above the step of the checkpoint to start from, "
            f"{step}. Received: max_steps={options.max_steps}"
        )
    return step
