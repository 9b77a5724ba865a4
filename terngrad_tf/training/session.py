"""What a run is made of, whichever way it trains: data, strategy, checkpoints, callbacks."""

import contextlib
import functools

import keras
import tensorflow as tf

import slim_data
from terngrad_tf import models
from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.training import callbacks, data, objective, summaries, synthetic
from terngrad_tf.training.errors import UserError

CHECKPOINT_NAME = "model.ckpt"


def refuse_cluster():
    """Raises UserError where `TF_CONFIG` describes a cluster."""
    # Each process would wait for its peers, then write to the same folder.
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()
    if cluster:
        raise UserError(
            f"`TF_CONFIG` must not be set: training here runs on one host. Received: {cluster}"
        )


def describe(options):
    """The `data.Subset` that a run trains on; `options` are `TrainOptions`."""
    if options.benchmark_mode:
        return synthetic.describe(options.dataset_name, options.subset)
    return data.describe(
        options.dataset_name, options.data_dir, options.subset, options.skip_corrupt_records
    )


def make_strategy(options, num_examples):
    """The `TernGradStrategy` of a run.

    Args:
        options: `TrainOptions`.
        num_examples: examples an epoch.

    Raises:
        ValueError: an option is out of range.
    """

    def has_float_gradients(step):
        epoch = step * options.batch_size // num_examples
        return tf.equal(epoch % options.floating_grad_epoch, options.floating_grad_epoch - 1)

    return TernGradStrategy(
        options.num_nodes,
        grad_bits=options.grad_bits,
        clip_factor=options.clip_factor,
        min_size=options.size_to_binarize,
        quantize_logits=options.quantize_logits,
        rounding=options.rounding,
        wire=options.wire,
        seed=options.seed,
        num_gpus=options.num_gpus,
        float_steps=has_float_gradients if options.floating_grad_epoch else None,
        statistics_every=options.save_iter,
    )


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
    weights = {id(weight) for weight in model.weights}
    return [variable.value for variable in model.variables if id(variable) not in weights]


def step_of(checkpoint):
    """Steps done at a checkpoint, from its name: with loss scaling optimizers skip some."""
    return int(checkpoint.rpartition("-")[2])


def make_manager(checkpoint, options, folder):
    """The `tf.train.CheckpointManager` of a run, which keeps its newest checkpoints.

    Args:
        checkpoint: `tf.train.Checkpoint`.
        options: `TrainOptions`.
        folder: `RunFolder`.
    """
    return tf.train.CheckpointManager(
        checkpoint,
        str(folder.path),
        max_to_keep=options.max_to_keep,
        checkpoint_name=CHECKPOINT_NAME,
    )


def resume(manager):
    """Restores the newest checkpoint and returns its step, None where there is none."""
    latest = manager.latest_checkpoint
    if not latest:
        return None
    manager.checkpoint.restore(latest).assert_existing_objects_matched()
    callbacks.log(f"resuming from {latest} at step {step_of(latest)}")
    return step_of(latest)


def fit(
    options,
    strategy,
    model,
    manager,
    first_step,
    *,
    learning_rate=None,
    traffic=None,
    log_every=callbacks.LOG_EVERY,
    more=lambda writer: [],
):
    """Trains up to `options.max_steps`, with log lines, TensorBoard, checkpoints, progress.

    Args:
        options: `TrainOptions`.
        strategy: the strategy.
        model: compiled `keras.Model`.
        manager: from `make_manager`; its folder also takes the TensorBoard logs.
        first_step: steps done.
        learning_rate: function of the number of steps done. Default: there is none to tell.
        traffic: function that gives the `Traffic` of a step. Default: as the strategy counts it.
        log_every: steps from one log line to the next. Default 10.
        more: function of the TensorBoard writer to a list of callbacks, called first. Default:
            none.

    Raises:
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
    """
    writer = tf.summary.create_file_writer(str(manager.directory))
    explained = slim_data.explained(options.dataset_name, options.data_dir, options.subset)
    with explained, contextlib.closing(writer):
        model.fit(
            examples(options, first_step),
            steps_per_epoch=options.max_steps - first_step,
            shuffle=False,  # the data set shuffles
            verbose=0,
            callbacks=[
                callbacks.StopOnDivergence(first_step, manager),
                *more(writer),
                callbacks.TrainingLog(
                    first_step,
                    options.batch_size,
                    writer,
                    traffic or (lambda: strategy.traffic),
                    learning_rate,
                    functools.partial(objective.entropy_loss, options.net),
                    log_every,
                ),
                summaries.Histograms(
                    first_step,
                    options.save_iter,
                    writer,
                    lambda: strategy.gradient_statistics,
                ),
                callbacks.SaveCheckpoints(
                    first_step, manager, options.save_iter, options.max_steps
                ),
                callbacks.ProgressBar(first_step, options.max_steps),
            ],
        )


def examples(options, first_step):
    """Batches without end, from that of step `first_step` on."""
    if options.benchmark_mode:
        found = synthetic.load(
            options.dataset_name,
            options.batch_size,
            options.image_size,
            seed=options.seed,
            start_step=first_step,
        )
    else:
        found = data.load(
            options.dataset_name,
            options.data_dir,
            options.subset,
            options.batch_size,
            options.image_size,
            True,
            preprocessing=models.preprocessing(options.net),
            skip_corrupt_records=options.skip_corrupt_records,
            num_readers=options.num_readers,
            num_parallel_calls=options.num_preprocess_threads,
            shuffle_buffer=1024 * options.input_queue_memory_factor,
            seed=options.seed,
            start_step=first_step,
        )
    return objective.with_targets(options.net, found)
