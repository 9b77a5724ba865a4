"""Evaluates the checkpoints of a run, once or as they appear: `evaluate`."""

import contextlib
import dataclasses
import gc
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import models
from terngrad_tf.common import tags
from terngrad_tf.training.configs.eval_config import EvalConfig
from terngrad_tf.training.errors import UserError, as_user_error, require, writing_into
from terngrad_tf.training.evaluation.class_accuracies import tell_classes
from terngrad_tf.training.evaluation.hits import count_hits
from terngrad_tf.training.input import data
from terngrad_tf.training.log import log
from terngrad_tf.training.logs import summaries
from terngrad_tf.training.logs.board import Board
from terngrad_tf.training.network import inception_checkpoint, networks, pretrained
from terngrad_tf.training.optimization import optimizers, schedules, statistics_average
from terngrad_tf.training.storage import checkpoints, run_folder

# Interval of checks whether training has ended.
_GLANCE_SECONDS = 1.0
LAST, AVERAGE = "last weights", "moving average"


@dataclasses.dataclass(frozen=True)
class EvalResult:
    """Results for one checkpoint.

    Args:
        step: number of training steps of the checkpoint.
        precision_at_1: fraction of examples whose class has the largest logit.
        recall_at_5: fraction of examples whose class is among the five largest logits.
        num_examples: number of examples evaluated, each once.
        weights: weights evaluated, `LAST` or `AVERAGE`.
        cross_entropy: mean over the examples, without weight decay or label smoothing.
    """

    step: int
    precision_at_1: float
    recall_at_5: float
    num_examples: int
    weights: str
    cross_entropy: float


def evaluate(config: EvalConfig) -> EvalResult:
    """Evaluates the newest checkpoint, then, unless `run_once`, each new one that appears.

    The loop ends after the checkpoint of step `max_steps` (default: the run's), which is evaluated
    as soon as it exists.

    Args:
        config: `EvalConfig`.

    Returns:
        The last `EvalResult`.

    Raises:
        UserError: an option does not match the run, or `run_once` finds no checkpoint.
        slim_data.DataError: the data is missing or damaged.
    """
    _claim_eval_dir(config.eval_dir)
    look = pretrained.newest_checkpoint if config.run_once else pretrained.find_newest
    result = evaluated = None
    while True:
        path, run = look(config.checkpoint_dir) or (None, None)
        if path is None or run is None:
            log("No checkpoint file found")
        elif result is not None and path == evaluated:
            log(f"step={result.step} is already evaluated. Skip.")
        else:
            try:
                result = evaluate_checkpoint(path, run, config)
            except UserError:
                # The trainer may have rotated the checkpoint away; a newer one exists.
                if pretrained.latest_checkpoint(config.checkpoint_dir) == path:
                    raise
                continue
            evaluated = path
            # Networks and their functions form few but large reference cycles, which Python
            # collects late.
            gc.collect()
        if run and result and result.step >= (config.max_steps or run["max_steps"]):
            log("The final step is evaluated. Exit!")
            return result
        if config.run_once and result:
            return result
        _wait(config)


def _wait(config):
    """Waits until the next evaluation, or until the last step's checkpoint exists."""
    # An interval of 0 seconds must not fill the log.
    end = time.monotonic() + max(config.eval_interval_secs, _GLANCE_SECONDS)
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _GLANCE_SECONDS))
        path, run = pretrained.find_newest(config.checkpoint_dir) or (None, None)
        if path is None or run is None or inception_checkpoint.is_meant(run):
            continue
        if checkpoints.step_of(path) >= (config.max_steps or run["max_steps"]):
            return


def evaluate_checkpoint(path: str, run: dict[str, Any], config: EvalConfig) -> EvalResult:
    """Evaluates one checkpoint and writes its results for TensorBoard."""
    config.check_run(run)
    name = config.data.dataset_name or run["identity"]["dataset_name"]
    # Training on own images may have set the number of classes.
    own_classes = run["identity"].get("num_classes")
    config = config.changed(dataset_name=name, num_classes=own_classes)
    batch_size = config.data.batch_size
    dataset = data.find_dataset(config.data)
    with as_user_error(), tf.device(_device(config.device)):
        model, step = restore_network(path, run, config.restore_avg_var)
    for key in ("num_classes", "channels"):
        value = getattr(dataset, key)
        if value != run["model"][key]:
            raise UserError(
                f"`dataset_name` must have the {key} of the run in checkpoint_dir, "
                f"{run['model'][key]}. Received: dataset_name={name!r} with {value}"
            )
    weights = weights_of(run, config.restore_avg_var)
    log(f"Successfully loaded model from {path} at step={step}, {weights}.")
    log(f"starting evaluation on ({config.data.subset}).")
    wanted = min(config.num_examples or dataset.num_examples, dataset.num_examples)
    style = models.preprocessing(run["model"]["net"])
    image_size = run["model"]["image_size"]
    examples = data.load(config.data, batch_size, image_size, False, preprocessing=style)
    with (
        contextlib.closing(Board(config.eval_dir, run.get("steps_before", 0))) as board,
        tf.device(_device(config.device)),
        config.data.locate_corrupt_records(),
    ):

        def look(images):
            summaries.write_network(model, images, board, step)

        hits = count_hits(model, examples, wanted, batch_size, look)
        if (seen := hits.seen) == 0:
            raise UserError(
                f"`subset` must hold examples. Received: subset={config.data.subset!r} "
                f"of data_dir={config.data.data_dir!r}, which is empty"
            )
        shares = hits.at_1 / seen, hits.at_5 / seen
        result = EvalResult(step, *shares, seen, weights, hits.loss / seen)
        scalars = dict(zip((tags.PRECISION_AT_1, tags.RECALL_AT_5), shares, strict=True))
        board.scalars({**scalars, tags.CROSS_ENTROPY: result.cross_entropy}, step)
    log(
        f"precision @ 1 = {result.precision_at_1:.4f} recall @ 5 = {result.recall_at_5:.4f} "
        f"[{seen} examples]"
    )
    log(f"cross-entropy = {result.cross_entropy:.4f}")
    tell_classes(hits.by_class, config.data.info, config.eval_dir)
    return result


def keeps_average(run: Mapping[str, Any]) -> bool:
    """Returns True if a run's checkpoints hold a moving average."""
    if inception_checkpoint.is_meant(run):
        return True
    # Training in a subspace has no average.
    return run["identity"]["optimizer"] in optimizers.available()


def weights_of(run: Mapping[str, Any], restore_avg_var: bool) -> str:
    """Returns which weights `restore_network` restores, `LAST` or `AVERAGE`."""
    return AVERAGE if restore_avg_var and keeps_average(run) else LAST


def restore_network(
    path: str, run: dict[str, Any], restore_avg_var: bool
) -> tuple[keras.Model, int]:
    """Builds a run's network with a checkpoint's weights; returns the number of steps, too.

    Args:
        restore_avg_var: whether to use the weights' moving average, if the run kept one.
    """
    if inception_checkpoint.is_meant(run):
        model = inception_checkpoint.load(path, run, averages=restore_avg_var)
        return model, run["max_steps"]
    model = networks.build_described(run)
    checkpoints.restore(tf.train.Checkpoint(model=model), path)
    if restore_avg_var and keeps_average(run):
        _restore_averages(model, path, run["identity"])
    return model, checkpoints.step_of(path)


def _restore_averages(model, path, identity):
    """Assigns the averages that a run's optimizer kept to a model's weights and statistics."""
    if identity.get("sync_every") or identity.get("sync_seconds"):
        # Only the outer optimizer keeps averages.
        momentum = identity.get("outer_momentum") or 0.0
        optimizer = optimizers.build_outer(interval=1, learning_rate=0.0, momentum=momentum)
        saved = tf.train.Checkpoint(outer=optimizer)
    else:
        optimizer = optimizers.build_optimizer(identity["optimizer"], schedules.Constant(0.0))
        saved = optimizer
    optimizer.build(model.trainable_variables)
    checkpoints.restore(tf.train.Checkpoint(optimizer=saved), path)
    optimizer.finalize_variable_values(model.trainable_variables)
    statistics_average.restore_statistics(model, path)


def _device(name):
    """Returns the requested device, or the CPU if this machine lacks it."""
    try:
        wanted = tf.DeviceSpec.from_string(name)
    except ValueError as error:
        raise UserError(
            f"`device` must be a device name like '/gpu:0' or '/cpu:0'. Received: device={name!r}"
        ) from error
    kind, index = wanted.device_type or "CPU", wanted.device_index or 0
    there = len(tf.config.list_logical_devices(kind))
    return f"/{kind}:{index}" if index < there else "/CPU:0"


def _claim_eval_dir(folder):
    is_run = os.path.lexists(os.path.join(folder, run_folder.RUN_FILE))
    rule = "must not be the folder of a run, whose curves have the same names in TensorBoard"
    require(not is_run, "eval_dir", rule, str(folder))
    with writing_into("eval_dir", folder):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
