"""Initial weights from another run."""

import os
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import models
from terngrad_tf.training.configs import checks
from terngrad_tf.training.configs.config import values_before
from terngrad_tf.training.configs.run_config import TrainConfig
from terngrad_tf.training.errors import UserError, require
from terngrad_tf.training.input.data import DatasetShard
from terngrad_tf.training.log import log
from terngrad_tf.training.network import inception_checkpoint, networks
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage
from terngrad_tf.training.storage import checkpoints, run_folder

# Path of a checkpoint, and the run's description.
Source = tuple[str, dict[str, Any]]

_ARGUMENT = "pretrained_model_checkpoint_path"


def latest_checkpoint(folder: str) -> str | None:
    """Returns the path of a folder's newest checkpoint, of TensorFlow 1 or 2, or None."""
    path = checkpoints.latest_checkpoint(folder)
    state = None if path else tf.train.get_checkpoint_state(folder)
    # A moved folder may state its old place.
    moved = os.path.join(folder, os.path.basename(state.model_checkpoint_path)) if state else None
    return path or (moved if moved and _exists(moved) else None)


def run_of_checkpoint(checkpoint: str) -> dict[str, Any] | None:
    """Describes the run of a checkpoint, as `run_folder.read_run`; None without a description.

    TensorFlow 1's Inception-v3 needs no run.json.
    """
    run = run_folder.read_run(os.path.dirname(checkpoint))
    return inception_checkpoint.describe_run(checkpoint) if run is None else run


def find_newest(folder: str) -> Source | None:
    """Returns the path of a run's newest checkpoint and the run's description, or None."""
    checkpoint = latest_checkpoint(folder)
    run = run_of_checkpoint(checkpoint) if checkpoint else None
    return None if checkpoint is None or run is None else (checkpoint, run)


def newest_checkpoint(folder: str) -> Source:
    """Returns the result of `find_newest`; raises UserError if there is none."""
    found = find_newest(folder)
    if found is None:
        raise UserError(
            f"`checkpoint_dir` must hold a run with a checkpoint. Received: "
            f"checkpoint_dir={folder!r}"
        )
    return found


def find_source(path: str) -> Source | None:
    """Finds the checkpoint to start from and the description of the run.

    Args:
        path: a checkpoint, with or without ".index", or a folder, for its newest checkpoint; "" for
            a new run, which has no source.
    """
    if not path:
        return None
    path = os.path.expanduser(path)
    checks.folder(_ARGUMENT, path)
    if os.path.isdir(path):
        checkpoint = latest_checkpoint(path)
    else:
        checkpoint = path.removesuffix(".index")
        checkpoint = checkpoint if _exists(checkpoint) else None
    if checkpoint is None:
        raise UserError(
            f"`{_ARGUMENT}` must be a checkpoint or a folder with checkpoints. "
            f"Received: {_ARGUMENT}={path!r}"
        )
    run = run_of_checkpoint(checkpoint)
    if run is None:
        raise UserError(
            f"`{_ARGUMENT}` must have its run's {run_folder.RUN_FILE} beside it or be the "
            f"checkpoint inception-v3-2016-03-01, unpacked. Received: {_ARGUMENT}={path!r}"
        )
    return checkpoint, run


def find_start(path: str, train_dir: str) -> tuple[Source | None, bool]:
    """Returns the source of a run's network, and whether the run resumes from its own folder.

    A run that was saved is its own source: the weights that it began with may be gone.

    Args:
        path: see `find_source`.
    """
    newest = checkpoints.latest_checkpoint(train_dir) if path else None
    run = run_folder.read_run(train_dir) if newest else None
    if newest is None or run is None:
        return find_source(path), False
    return (newest, run), True


def _exists(checkpoint):
    """True for a checkpoint in TensorFlow's current or first format."""
    return os.path.isfile(f"{checkpoint}.index") or os.path.isfile(checkpoint)


def check_source(source: Source | None, config: TrainConfig, shard: DatasetShard) -> None:
    """Refuses a run whose weights do not fit the new run."""
    if source is None:
        return
    _, run = source
    always = {
        "net": config.model.net,
        "image_size": config.model.image_size,
        "channels": shard.channels,
    }
    steps = config.local_steps
    unless_fine_tuned = {
        "num_classes": shard.num_classes,
        "optimizer": config.optimizer.name,
        "sync_every": steps.sync_every,
        "sync_seconds": steps.sync_seconds,
    }
    if steps.sync_every:
        unless_fine_tuned |= {"fragments": steps.fragments, "overlap": steps.overlap}
    known = {name: value for name, value in run["identity"].items() if value is not None}
    found = {**values_before(TrainConfig), **known, **run["model"]}
    wanted = always if config.fine_tune else {**always, **unless_fine_tuned}
    for name, value in wanted.items():
        if found[name] != value:
            hint = "" if name in always else " (fine_tune allows it to differ)"
            raise UserError(
                f"`{_ARGUMENT}` must be a run with the {name} of this one, {value!r}{hint}. "
                f"Received: {_ARGUMENT}={config.pretrained_model_checkpoint_path!r} "
                f"with {found[name]!r}"
            )


def restore_source(
    source: Source | None,
    config: TrainConfig,
    model: keras.Model,
    checkpoint: tf.train.Checkpoint,
    average: StatisticsAverage,
) -> int:
    """Restores the weights of another run, if any, and returns the step to continue from.

    Args:
        source: result of `find_source`, after `check_source`.
        config, model, checkpoint, average: the new run's.
    """
    if source is None:
        return 0
    path, run = source
    if config.fine_tune:
        restore_features(path, run, model)
        return 0
    step = restore_all(path, run, model, checkpoint, average)
    rule = f"must be above the step of the checkpoint to start from, {step}"
    require(step < config.max_steps, "max_steps", rule, config.max_steps)
    return step


def restore_features(path: str, run: dict[str, Any], model: keras.Model) -> None:
    """Restores the weights of all layers except classification layers."""
    with tf.device("/cpu:0"):
        if inception_checkpoint.is_meant(run):
            pretrained = inception_checkpoint.load(path, run, averages=False)
        else:
            pretrained = networks.build_described(run)
            checkpoints.restore(tf.train.Checkpoint(model=pretrained), path)
    started_anew = list(models.output_loss_weights(run["model"]["net"]))
    restored = []
    for layer in model.layers:
        if layer.weights and layer.name not in started_anew:
            layer.set_weights(pretrained.get_layer(layer.name).get_weights())
            restored.append(layer.name)
    log(f"Pre-trained model restored from {path}")
    log(f"restored: {', '.join(restored)}")
    log(f"not restored: {', '.join(started_anew)}, state of the optimizer, step")


def restore_all(
    path: str,
    run: dict[str, Any],
    model: keras.Model,
    checkpoint: tf.train.Checkpoint,
    average: StatisticsAverage,
) -> int:
    """Restores everything; returns the checkpoint's step."""
    if inception_checkpoint.is_meant(run):
        inception_checkpoint.restore_all(path, model, average)
        step = run["max_steps"]
    else:
        checkpoints.restore(checkpoint, path)
        step = checkpoints.step_of(path)
    log(f"Pre-trained model restored from {path}")
    log("restored: all weights, state of the optimizer, step")
    return step
