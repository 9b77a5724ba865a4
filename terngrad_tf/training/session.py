"""What a run is made of, whichever way it trains: data, strategy, checkpoints, callbacks."""

import contextlib
import dataclasses
import functools
import re

import keras
import tensorflow as tf

import slim_data
from terngrad_tf import models
from terngrad_tf.distribute import (
    StragglerMonitor,
    TernGradStrategy,
    peer_errors,
    run_on_all,
)
from terngrad_tf.training import (
    callbacks,
    checkpoints,
    data,
    epoch_log,
    objective,
    summaries,
    synthetic,
    times,
)
from terngrad_tf.training.errors import UserError


def make_strategy(options, num_examples, **cluster):
    """The `TernGradStrategy` of a run; in a cluster it waits for the other processes.

    Args:
        options: `TrainOptions`.
        num_examples: function that gives the examples an epoch; called when a step is traced.
        **cluster: `cluster_resolver` and `start_timeout`, as for `TernGradStrategy`.

    Raises:
        ValueError: an option is out of range.
        PeerError: another process is missing or was started differently.
    """

    def has_float_gradients(step):
        return is_float_step(options, num_examples(), step)

    return TernGradStrategy(
        options.num_nodes,
        **gradient_options(options),
        num_gpus=options.num_gpus,
        float_steps=has_float_gradients if options.floating_grad_epoch else None,
        statistics_freq=options.statistics_freq,
        **cluster,
    )


def gradient_options(options):
    """How gradients travel, as keyword arguments of `TernaryAllReduce`, of `TrainOptions`."""
    return {
        "grad_bits": options.grad_bits,
        "clip_factor": options.clip_factor,
        "min_size": options.size_to_binarize,
        "quantize_logits": options.quantize_logits,
        "rounding": options.rounding,
        "wire": options.wire,
        "seed": options.seed,
    }


def is_float_step(options, num_examples, step):
    """Whether a step lies in an epoch with float gradients, the last of `floating_grad_epoch`.

    Args:
        options: `TrainOptions`, its floating_grad_epoch above 0.
        num_examples: examples an epoch.
        step: steps done before, an int or a scalar integer tensor.
    """
    epoch = step * options.batch_size // num_examples
    return epoch % options.floating_grad_epoch == options.floating_grad_epoch - 1


def describe(options, strategy=None):
    """The `data.Subset` that a run trains on.

    Args:
        options: `TrainOptions`.
        strategy: the strategy, whose processes all call it. Default: this process looks alone.

    Raises:
        UserError: the data set has no such part, or the processes' files do not fit together.
        slim_data.DataError: the data set is unknown or its files are missing or damaged.
        PeerError: another process failed.
    """
    found = _find_data(options, strategy)
    if options.num_classes is None:
        return found
    info = slim_data.info(options.dataset_name, options.data_dir)
    outputs = info.label_offset + options.num_classes
    return dataclasses.replace(found, num_classes=outputs)


def _find_data(options, strategy):
    index = 0 if strategy is None else strategy.process_index
    if options.benchmark_mode:
        subset = synthetic.describe(options.dataset_name, options.subset)
        return dataclasses.replace(subset, seed_offset=index)
    place = options.dataset_name, options.data_dir, options.subset
    if strategy is None or strategy.num_processes == 1:
        return data.describe(*place, options.skip_corrupt_records)
    own = None

    def look():
        nonlocal own
        own = data.describe(*place, options.skip_corrupt_records)
        return [data.fingerprint(*place), own.num_examples]

    fingerprints, counts = zip(*run_on_all(strategy, "data set", look), strict=True)
    found = data.among_processes(own, fingerprints, counts, index)
    if strategy.is_chief:
        how = f"share {own.num_examples} examples"
        if found.num_shares == 1:
            how = f"have examples of their own: {', '.join(map(str, counts))}"
        callbacks.log(f"{len(counts)} workers {how}")
    return found


def build_network(options, dataset):
    """The network of a run.

    Args:
        options: `TrainOptions`, image_size given.
        dataset: `data.Subset`.

    Raises:
        ValueError: an option is out of range.
    """
    policy = keras.config.dtype_policy()
    if options.mixed_precision:
        keras.config.set_dtype_policy("mixed_float16")
    try:
        return models.build(
            options.net,
            dataset.num_classes,
            options.image_size,
            dataset.channels,
            weight_decay=options.weight_decay,
            dropout_keep_prob=options.dropout_keep_prob,
            seed=options.seed,
        )
    finally:
        keras.config.set_dtype_policy(policy)


def random_states(model):
    """Variables that count random draws, those of dropout.

    Keras' own checkpoints leave them out, but a resumed run goes on with the next draw.
    """
    return [variable.value for variable in random_variables(model)]


def random_variables(model):
    """The `keras.Variable`s of `random_states`."""
    weights = {id(weight) for weight in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def step_of(checkpoint):
    """Steps done at a checkpoint, from its name: with loss scaling optimizers skip some.

    Raises:
        UserError: the name does not end in them.
    """
    digits = checkpoint.rpartition("-")[2]
    if not re.fullmatch("[0-9]{1,18}", digits):
        raise UserError(f"{checkpoint} must be a checkpoint whose name ends in its step: -400")
    return int(digits)


def make_manager(checkpoint, options, folder):
    """The `tf.train.CheckpointManager` of a run, which keeps its newest checkpoints.

    Args:
        checkpoint: `tf.train.Checkpoint`.
        options: `TrainOptions`.
        folder: `RunFolder`.

    Raises:
        UserError: the folder's list of checkpoints is damaged.
    """
    checkpoints.latest(folder.path)
    return tf.train.CheckpointManager(
        checkpoint,
        str(folder.path),
        max_to_keep=options.max_to_keep,
        checkpoint_name=checkpoints.NAME,
    )


def resume(manager):
    """Restores the newest checkpoint and returns its step, None where there is none.

    Raises:
        UserError: the checkpoint is damaged.
    """
    latest = manager.latest_checkpoint
    if not latest:
        return None
    checkpoints.restore(manager.checkpoint, latest)
    callbacks.log(f"resuming from {latest} at step {step_of(latest)}")
    return step_of(latest)


def fit(
    options,
    strategy,
    model,
    dataset,
    manager,
    first_step,
    *,
    learning_rate=None,
    traffic=None,
    log_every=None,
    log_epochs=False,
    more=lambda writer: [],
):
    """Trains up to `options.max_steps`, with log lines, TensorBoard, checkpoints, progress.

    In a cluster all processes call it and print log lines; all else is the chief's.

    Args:
        options: `TrainOptions`.
        strategy: the strategy.
        model: compiled `keras.Model`.
        dataset: `data.Subset`.
        manager: `tf.train.CheckpointManager`, whose folder also takes the TensorBoard logs; None on
            processes other than the chief.
        first_step: steps done.
        learning_rate: function of the number of steps done. Default: there is none to tell.
        traffic: function of the number of steps done to the `Traffic` of the next one. Default: as
            the strategy counts it.
        log_every: steps from one log line to the next. Default 10, in a cluster 30.
        log_epochs: whether to print a line at the end of each epoch too. Default False.
        more: function of the TensorBoard writer to a list of the chief's callbacks, called first.
            Default: none.

    Raises:
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            slim_data.explained(options.dataset_name, options.data_dir, options.subset)
        )
        # Inside, so that a lost process is not looked for in the data.
        stack.enter_context(peer_errors(strategy.tasks))
        writer = None
        if manager is not None:
            writer = tf.summary.create_file_writer(str(manager.directory))
            stack.enter_context(contextlib.closing(writer))
        log_every = log_every or callbacks.log_interval(strategy.tasks)
        entropy_loss = functools.partial(objective.entropy_loss, options.net)
        by_epoch = (first_step, options.batch_size, dataset.num_examples, entropy_loss)
        model.fit(
            examples(options, first_step, dataset, strategy),
            steps_per_epoch=options.max_steps - first_step,
            shuffle=False,  # the data set shuffles
            verbose=0,
            callbacks=[
                callbacks.StopOnDivergence(first_step, manager),
                *(more(writer) if manager else []),
                *([epoch_log.EpochLog(*by_epoch)] if log_epochs else []),
                callbacks.TrainingLog(
                    first_step,
                    options.batch_size,
                    writer,
                    traffic or strategy.traffic_of,
                    learning_rate,
                    entropy_loss,
                    log_every,
                    summary_rule(options, log_every),
                    strategy.tasks,
                ),
                StragglerMonitor(report=callbacks.log),
                *(_histograms(options, strategy, first_step, writer) if manager else []),
                _saving(options, strategy, first_step, manager),
                *([callbacks.ProgressBar(first_step, options.max_steps)] if manager else []),
            ],
        )


def summary_rule(options, steps):
    """Rule of `times`: when to write what is known after each so many steps for TensorBoard."""
    if options.save_summaries_secs is None:
        return times.every_steps(steps)
    return times.every_seconds(options.save_summaries_secs, steps, at_once=True)


def _histograms(options, strategy, first_step, writer):
    # The first record of gradients in each so many steps.
    every = options.statistics_freq
    by_time = options.save_summaries_secs is not None
    gradients_every = every if by_time else -(-options.save_iter // every) * every
    return [
        summaries.Histograms(
            first_step,
            summary_rule(options, every if by_time else options.save_iter),
            summary_rule(options, gradients_every),
            writer,
            lambda: strategy.gradient_statistics,
        )
    ]


def saving_rule(options):
    """Rule of `times`: when to save."""
    if options.save_interval_secs is None:
        return times.every_steps(options.save_iter)
    return times.every_seconds(options.save_interval_secs)


def _saving(options, strategy, first_step, manager):
    by_time = options.save_interval_secs is not None
    # The clock is the chief's.
    due = (lambda step: False) if by_time and not manager else saving_rule(options)
    is_due_on_all = not by_time or strategy.num_processes == 1
    return callbacks.SaveCheckpoints(first_step, manager, due, options.max_steps, is_due_on_all)


def examples(options, first_step, dataset=None, strategy=None):
    """Batches without end, from that of step `first_step` on, for `model.fit` under a strategy.

    Args:
        options: `TrainOptions`; its batch_size is that of all workers together.
        first_step: steps done.
        dataset: `data.Subset`. Default: this process reads all files.
        strategy: the strategy. Default: there is none.

    Returns:
        A `tf.data.Dataset` or, in a cluster, a `tf.distribute.DistributedDataset` of this process's
        part of the batches.
    """
    if strategy is None or strategy.tasks is None:
        return _batches(options, dataset, options.batch_size, first_step)
    num_local = strategy.num_replicas_in_sync // strategy.num_processes
    batch_size = options.batch_size // strategy.num_replicas_in_sync
    # Each worker of this process takes a batch in turn.
    return strategy.distribute_datasets_from_function(
        lambda context: _batches(options, dataset, batch_size, first_step * num_local)
    )


def _batches(options, dataset, batch_size, start_step):
    dataset = dataset or data.Subset(0, 0, 0)
    seed = options.seed + dataset.seed_offset
    if options.benchmark_mode:
        found = synthetic.load(
            options.dataset_name,
            batch_size,
            options.image_size,
            seed=seed,
            start_step=start_step,
        )
    else:
        found = data.load(
            options.dataset_name,
            options.data_dir,
            options.subset,
            batch_size,
            options.image_size,
            True,
            preprocessing=models.preprocessing(options.net),
            skip_corrupt_records=options.skip_corrupt_records,
            num_readers=options.num_readers,
            num_parallel_calls=options.num_preprocess_threads,
            shuffle_buffer=1024 * options.input_queue_memory_factor,
            seed=seed,
            start_step=start_step,
            num_input_pipelines=dataset.num_shares,
            input_pipeline_id=dataset.share,
        )
    return objective.with_targets(options.net, found)
