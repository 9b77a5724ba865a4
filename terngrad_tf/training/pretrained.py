"""Weights of another run to start from."""

import os

import tensorflow as tf

from terngrad_tf import models
from terngrad_tf.training import checkpoints, checks, inception_checkpoint, run_folder
from terngrad_tf.training.callbacks import log
from terngrad_tf.training.errors import UserError

_ARGUMENT = "pretrained_model_checkpoint_path"


def latest(folder):
    """Path of the newest checkpoint in a folder, of either TensorFlow; None where there is none."""
    path = checkpoints.latest(folder)
    state = None if path else tf.train.get_checkpoint_state(folder)
    # A folder that was moved may tell the place where it was.
    moved = os.path.join(folder, os.path.basename(state.model_checkpoint_path)) if state else None
    return path or (moved if moved and _exists(moved) else None)


def read_run(checkpoint):
    """Description of the run of a checkpoint, as `run_folder.read` gives it; None where none is.

    The Inception-v3 checkpoint of TensorFlow 1 needs no run.json beside it.

    Raises:
        UserError: run.json is unreadable.
    """
    run = run_folder.read(os.path.dirname(checkpoint))
    return inception_checkpoint.describe(checkpoint) if run is None else run


def find(path):
    """Finds a checkpoint and the description of its run.

    Args:
        path: a checkpoint, with or without ".index", or a folder, whose newest one is meant.

    Returns:
        (path of the checkpoint without ".index", dict as `run_folder.read` gives it).

    Raises:
        UserError: there is no checkpoint, or no run.json beside it.
    """
    path = os.path.expanduser(path)
    checks.folder(_ARGUMENT, path)
    if os.path.isdir(path):
        checkpoint = latest(path)
    else:
        checkpoint = path.removesuffix(".index")
        checkpoint = checkpoint if _exists(checkpoint) else None
    if checkpoint is None:
        raise UserError(
            f"`{_ARGUMENT}` must be a checkpoint or a folder with checkpoints. "
            f"Received: {_ARGUMENT}={path!r}"
        )
    run = read_run(checkpoint)
    if run is None:
        raise UserError(
            f"`{_ARGUMENT}` must have its run's {run_folder.RUN_FILE} beside it or be the "
            f"checkpoint inception-v3-2016-03-01, unpacked. Received: {_ARGUMENT}={path!r}"
        )
    return checkpoint, run


def _exists(checkpoint):
    """Whether a checkpoint is there, in TensorFlow's format of today or its first one."""
    return os.path.isfile(f"{checkpoint}.index") or os.path.isfile(checkpoint)


def check(run, options, *, num_classes, channels):
    """Refuses a run whose weights do not fit the one that is to start.

    Args:
        run: description of the pretrained run, from `find`.
        options: `TrainOptions` of the new run, image_size given.
        num_classes: outputs of the new run's network.
        channels: channels of its images.

    Raises:
        UserError: names the first fact that differs.
    """
    wanted = {"net": options.net, "image_size": options.image_size, "channels": channels}
    found = dict(run["model"])
    if not options.fine_tune:
        wanted |= {"num_classes": num_classes, "optimizer": options.optimizer}
        found["optimizer"] = run["identity"]["optimizer"]
    for fact, value in wanted.items():
        if found[fact] != value:
            hint = (
                " (fine_tune allows it to differ)" if fact in ("num_classes", "optimizer") else ""
            )
            raise UserError(
                f"`{_ARGUMENT}` must be a run with the {fact} of this one, {value!r}{hint}. "
                f"Received: {_ARGUMENT}={options.pretrained_model_checkpoint_path!r} "
                f"with {found[fact]!r}"
            )


def restore_features(path, run, model):
    """Takes the weights of all layers but those that tell the classes, and prints which.

    Args:
        path: path of the checkpoint, from `find`.
        run: description of its run, from `find`; `check` passed it.
        model: network to give the weights to.
    """
    facts = run["model"]
    with tf.device("/cpu:0"):
        if inception_checkpoint.is_meant(run):
            pretrained = inception_checkpoint.load(path, run, averages=False)
        else:
            pretrained = models.build(
                facts["net"], facts["num_classes"], facts["image_size"], facts["channels"]
            )
            checkpoint = tf.train.Checkpoint(model=pretrained)
            checkpoints.restore(checkpoint, path, partial=True)
    started_anew = list(models.output_loss_weights(facts["net"]))
    restored = []
    for layer in model.layers:
        if layer.weights and layer.name not in started_anew:
            layer.set_weights(pretrained.get_layer(layer.name).get_weights())
            restored.append(layer.name)
    log(f"Pre-trained model restored from {path}")
    log(f"restored: {', '.join(restored)}")
    log(f"not restored: {', '.join(started_anew)}, state of the optimizer, step")


def restore_all(path, run, model, checkpoint):
    """Takes everything, and prints what: the run goes on from the checkpoint's step.

    Args:
        path: path of the checkpoint, from `find`.
        run: description of its run, from `find`; `check` passed it.
        model: compiled network of the new run.
        checkpoint: `tf.train.Checkpoint` of the new run.

    Returns:
        The checkpoint's step.

    Raises:
        UserError: the checkpoint lacks something.
    """
    if inception_checkpoint.is_meant(run):
        inception_checkpoint.restore_all(path, model)
        step = run["max_steps"]
    else:
        checkpoints.restore(checkpoint, path)
        step = int(path.rpartition("-")[2])
    log(f"Pre-trained model restored from {path}")
    log("restored: all weights, state of the optimizer, step")
    return step
