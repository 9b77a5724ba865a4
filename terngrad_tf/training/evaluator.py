"""Evaluates the checkpoints of a run, once or as they appear: `evaluate`."""

import contextlib
import dataclasses
import math
import pathlib
import tempfile
import time

import tensorflow as tf

import slim_data
from terngrad_tf import models
from terngrad_tf.training import (
    checkpoints,
    checks,
    data,
    inception_checkpoint,
    optimizers,
    pretrained,
    run_folder,
    schedules,
    session,
    summaries,
)
from terngrad_tf.training.callbacks import log
from terngrad_tf.training.errors import UserError, as_user_error

PROGRESS_EVERY = 100
# From one look whether the training has ended to the next.
_GLANCE_SECONDS = 1.0

# They tell which run is meant; evaluation takes them from its description.
_RUN_OPTIONS = (
    "net",
    "image_size",
    "seed",
    "weight_decay",
    "dropout_keep_prob",
    "size_to_binarize",
)


@dataclasses.dataclass(frozen=True)
class EvalResult:
    """Figures of one checkpoint.

    Args:
        step: steps the checkpoint had been trained for.
        precision_at_1: fraction of examples whose class has the largest logit.
        recall_at_5: fraction of examples whose class is among the five largest logits.
        num_examples: examples evaluated, each once.
    """

    step: int
    precision_at_1: float
    recall_at_5: float
    num_examples: int


def evaluate(options):
    """Evaluates the newest checkpoint, then, unless `run_once`, each new one that appears.

    The loop ends after the checkpoint of step `max_steps` (default: that of the run), which it
    takes as soon as it is there.

    Args:
        options: `EvalOptions`.

    Returns:
        The last `EvalResult`.

    Raises:
        UserError: an option does not fit the run, or `run_once` finds no checkpoint.
        slim_data.DataError: the data is missing or damaged.
    """
    checks.folder("checkpoint_dir", options.checkpoint_dir)
    checks.path("data_dir", options.data_dir)
    _claim_eval_dir(options.eval_dir)
    result = evaluated = None
    while True:
        path = pretrained.latest(options.checkpoint_dir)
        run = pretrained.read_run(path) if path else run_folder.read(options.checkpoint_dir)
        if path is None or run is None:
            if options.run_once:
                raise UserError(
                    "`checkpoint_dir` must hold a run with a checkpoint. "
                    f"Received: checkpoint_dir={options.checkpoint_dir!r}"
                )
            log("No checkpoint file found")
        elif result is not None and path == evaluated:
            log(f"step={result.step} is already evaluated. Skip.")
        else:
            try:
                result = evaluate_checkpoint(path, run, options)
                evaluated = path
            except UserError:
                # The trainer may have rotated the checkpoint away meanwhile: a newer one is there.
                if pretrained.latest(options.checkpoint_dir) == path:
                    raise
                continue
        max_steps = options.max_steps or (run or {}).get("max_steps", math.inf)
        if result is not None and result.step >= max_steps:
            log("The final step is evaluated. Exit!")
            return result
        if options.run_once:
            return result
        _wait(options, max_steps)


def _wait(options, max_steps):
    """Until the next look, or until the checkpoint of the last step is there."""
    end = time.monotonic() + options.eval_interval_secs
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _GLANCE_SECONDS))
        path = pretrained.latest(options.checkpoint_dir)
        run = pretrained.read_run(path) if path else None
        if run is not None and not inception_checkpoint.is_meant(run):
            last = run["max_steps"] if math.isinf(max_steps) else max_steps
            if session.step_of(path) >= last:
                return


def evaluate_checkpoint(path, run, options):
    """Evaluates one checkpoint and writes its figures for TensorBoard.

    Args:
        path: path of the checkpoint.
        run: description of its run, as `run_folder.read` gives it.
        options: `EvalOptions`.

    Returns:
        An `EvalResult`.

    Raises:
        UserError: an option does not fit the run.
        slim_data.DataError: the data is missing or damaged.
    """
    name = _agreed(run, options)
    dataset = data.describe(name, options.data_dir, options.subset, options.skip_corrupt_records)
    with as_user_error(), tf.device(_device(options.device)):
        model, step = _restore(path, run, options.restore_avg_var)
    # Of images of one's own the training was told how many classes they have.
    own_classes = run["identity"].get("num_classes") is not None
    for fact in ("channels",) if own_classes else ("num_classes", "channels"):
        value = getattr(dataset, fact)
        if value != run["model"][fact]:
            raise UserError(
                f"`dataset_name` must have the {fact} of the run in checkpoint_dir, "
                f"{run['model'][fact]}. Received: dataset_name={name!r} with {value}"
            )
    log(f"Successfully loaded model from {path} at step={step}.")
    log(f"starting evaluation on ({options.subset}).")
    wanted = min(options.num_examples or dataset.num_examples, dataset.num_examples)
    examples = data.load(
        name,
        options.data_dir,
        options.subset,
        options.batch_size,
        run["model"]["image_size"],
        False,
        preprocessing=models.preprocessing(run["model"]["net"]),
        skip_corrupt_records=options.skip_corrupt_records,
        num_readers=options.num_readers,
        num_parallel_calls=options.num_preprocess_threads,
    )
    writer = tf.summary.create_file_writer(str(options.eval_dir))
    with (
        contextlib.closing(writer),
        tf.device(_device(options.device)),
        slim_data.explained(name, options.data_dir, options.subset),
    ):

        def look(images):
            summaries.write_network(model, images, writer, step)

        at_1, at_5, seen = _count(model, examples, wanted, options.batch_size, look)
    if seen == 0:
        raise UserError(
            f"`subset` must hold examples. Received: subset={options.subset!r} "
            f"of data_dir={options.data_dir!r}, which is empty"
        )
    result = EvalResult(step, at_1 / seen, at_5 / seen, seen)
    log(
        f"precision @ 1 = {result.precision_at_1:.4f} recall @ 5 = {result.recall_at_5:.4f} "
        f"[{seen} examples]"
    )
    _write_summary(options.eval_dir, result)
    return result


def _agreed(run, options):
    """Name of the data set; refuses options that differ from what the run was trained with."""
    identity = run["identity"]
    for name in _RUN_OPTIONS:
        given, trained = getattr(options, name), identity.get(name)
        # A checkpoint of TensorFlow 1 tells few of them.
        if None not in (given, trained) and given != trained:
            raise UserError(
                f"`{name}` must be that of the run in checkpoint_dir, {trained!r}. "
                f"Received: {name}={given!r}, checkpoint_dir={options.checkpoint_dir!r}"
            )
    checks.tower("tower", options.tower, identity["num_nodes"])
    return options.dataset_name or identity["dataset_name"]


def _restore(path, run, restore_avg_var):
    if inception_checkpoint.is_meant(run):
        model = inception_checkpoint.load(path, run, averages=restore_avg_var)
        return model, run["max_steps"]
    model = models.build(
        run["model"]["net"],
        run["model"]["num_classes"],
        run["model"]["image_size"],
        run["model"]["channels"],
    )
    identity = run["identity"]
    if identity["optimizer"] not in optimizers.available():
        # Training in a subspace keeps no moving averages.
        checkpoints.restore(tf.train.Checkpoint(model=model), path, partial=True)
        return model, session.step_of(path)
    optimizer = optimizers.build(identity["optimizer"], schedules.Constant(0.0))
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    checkpoints.restore(checkpoint, path, partial=True)
    if restore_avg_var:
        optimizer.finalize_variable_values(model.trainable_variables)
    return model, session.step_of(path)


def _count(model, examples, wanted, batch_size, look):
    """Hits at 1 and at 5 and the number of examples, over the first `wanted` examples.

    `look` is called with the images of the first batch.
    """

    @tf.function
    def hits(images, labels):
        # A network may have further outputs, for training.
        first = tf.nest.flatten(model(images, training=False))[0]
        logits = tf.cast(first, tf.float32)
        return [
            tf.math.count_nonzero(tf.math.in_top_k(labels, logits, k=k), dtype=tf.int64)
            for k in (1, 5)
        ]

    # Traced once, with the batch size left open: the last batch may be smaller.
    hits = hits.get_concrete_function(
        tf.TensorSpec([None, *model.input_shape[1:]], tf.float32), tf.TensorSpec([None], tf.int32)
    )
    num_batches = math.ceil(wanted / batch_size)
    at_1 = at_5 = seen = told = 0
    since = time.perf_counter()
    for batch, (images, labels) in enumerate(examples.take(num_batches), start=1):
        left = wanted - seen
        if batch == 1:
            look(images[:left])
        batch_at_1, batch_at_5 = hits(images[:left], labels[:left])
        at_1, at_5 = at_1 + int(batch_at_1), at_5 + int(batch_at_5)
        seen += min(left, int(labels.shape[0]))
        if batch % PROGRESS_EVERY == 0 or batch == num_batches:
            seconds = (time.perf_counter() - since) / (batch - told)
            log(
                f"[{batch} batches out of {num_batches}] "
                f"({batch_size / seconds:.1f} examples/sec; {seconds:.3f}sec/batch)"
            )
            since, told = time.perf_counter(), batch
    return at_1, at_5, seen


def _device(name):
    """The device asked for, or the CPU where this machine does not have it."""
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
    checks.path("eval_dir", folder)
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            "`eval_dir` must be a folder that can be written to. "
            f"Received: eval_dir={str(folder)!r} ({error.strerror})"
        ) from error


def _write_summary(folder, result):
    writer = tf.summary.create_file_writer(str(folder))
    with contextlib.closing(writer), writer.as_default():
        tf.summary.scalar("Precision @ 1", result.precision_at_1, step=result.step)
        tf.summary.scalar("Recall @ 5", result.recall_at_5, step=result.step)
