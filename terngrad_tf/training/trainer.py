"""Trains a network on a data set: `train`."""

import contextlib
import dataclasses
import functools

import tensorflow as tf

import slim_data
from terngrad_tf import models
from terngrad_tf.distribute import TernGradStrategy
from terngrad_tf.training import (
    callbacks,
    data,
    objective,
    optimizers,
    pretrained,
    schedules,
    summaries,
    synthetic,
)
from terngrad_tf.training.errors import UserError, as_user_error
from terngrad_tf.training.run_folder import RunFolder

CHECKPOINT_NAME = "model.ckpt"


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` leaves.

    Args:
        step: steps done.
        checkpoint: path of the newest checkpoint.
        traffic: bytes per worker and step as the strategy counted them; None where no step ran.
    """

    step: int
    checkpoint: str
    traffic: object


def train(options):
    """Trains until `options.max_steps`, going on where a run in `train_dir` stopped.

    A run that is stopped, by whatever means, and resumed has the weights, bit for bit, of the run
    that was not stopped.

    Args:
        options: `TrainOptions`.

    Returns:
        A `TrainResult`.

    Raises:
        UserError: an option, the data or the folder does not fit.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
    """
    _refuse_cluster()
    with as_user_error():
        options = _resolved(options)
    dataset = _describe(options)
    start = None
    if options.pretrained_model_checkpoint_path:
        start = pretrained.find(options.pretrained_model_checkpoint_path)
        pretrained.check(
            start[1], options, num_classes=dataset.num_classes, channels=dataset.channels
        )
    with as_user_error():
        strategy = _strategy(options, dataset.num_examples)
        with strategy.scope():
            model, learning_rate = _build(options, dataset)
    folder = RunFolder(
        options.train_dir,
        options.identity(),
        max_steps=options.max_steps,
        model={
            "net": options.net,
            "num_classes": dataset.num_classes,
            "image_size": options.image_size,
            "channels": dataset.channels,
        },
    )
    try:
        return _run(options, strategy, model, learning_rate, folder, start)
    finally:
        folder.close()


def _resolved(options):
    """The options with the network's own values where nothing was given."""
    usual_size, _ = models.input_shape(options.net)
    smoothing = options.label_smoothing
    return dataclasses.replace(
        options,
        image_size=options.image_size or usual_size,
        label_smoothing=models.label_smoothing(options.net) if smoothing is None else smoothing,
    )


def _describe(options):
    if options.benchmark_mode:
        return synthetic.describe(options.dataset_name, options.subset)
    return data.describe(
        options.dataset_name, options.data_dir, options.subset, options.skip_corrupt_records
    )


def _strategy(options, num_examples):
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


def _refuse_cluster():
    # Each process would wait for its peers, then write to the same folder.
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec().as_dict()
    if cluster:
        raise UserError(
            f"`TF_CONFIG` must not be set: training here runs on one host. Received: {cluster}"
        )


def _build(options, dataset):
    model = models.build(
        options.net,
        dataset.num_classes,
        options.image_size,
        dataset.channels,
        weight_decay=options.weight_decay,
        dropout_keep_prob=options.dropout_keep_prob,
        seed=options.seed,
    )
    learning_rate = schedules.build(
        options.learning_rate_decay_type,
        options.initial_learning_rate,
        max_steps=options.max_steps,
        steps_per_epoch=dataset.num_examples / options.batch_size,
        num_epochs_per_decay=options.num_epochs_per_decay,
        decay_factor=options.learning_rate_decay_factor,
        optimizer=options.optimizer,
    )
    optimizer = optimizers.build(options.optimizer, learning_rate, options.momentum)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer,
        **objective.compile_arguments(options.net, options.label_smoothing),
        # XLA leaves out the strategy's reduction where every device is a GPU.
        jit_compile=False,
    )
    return model, learning_rate


def _random_states(model):
    # Dropout counts its draws. Keras' own checkpoints leave that out, but a resumed run goes on
    # with the next draw.
    weights = {id(weight) for weight in model.weights}
    return [variable.value for variable in model.variables if id(variable) not in weights]


def _run(options, strategy, model, learning_rate, folder, start):
    checkpoint = tf.train.Checkpoint(
        model=model, optimizer=model.optimizer, random=_random_states(model)
    )
    manager = tf.train.CheckpointManager(
        checkpoint,
        str(folder.path),
        max_to_keep=options.max_to_keep,
        checkpoint_name=CHECKPOINT_NAME,
    )
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
        resumed_step = int(model.optimizer.iterations.numpy())
        callbacks.log(f"resuming from {manager.latest_checkpoint} at step {resumed_step}")
    elif start is not None:
        path, run = start
        if options.fine_tune:
            pretrained.restore_features(path, run, model)
        else:
            pretrained.restore_all(path, checkpoint)
            if int(model.optimizer.iterations.numpy()) >= options.max_steps:
                raise UserError(
                    "`max_steps` must be above the step of the checkpoint to start from, "
                    f"{model.optimizer.iterations.numpy()}. Received: max_steps={options.max_steps}"
                )
    first_step = int(model.optimizer.iterations.numpy())
    if first_step < options.max_steps:
        writer = tf.summary.create_file_writer(str(folder.path))
        explained = slim_data.explained(options.dataset_name, options.data_dir, options.subset)
        with explained, contextlib.closing(writer):
            model.fit(
                _examples(options, first_step),
                steps_per_epoch=options.max_steps - first_step,
                shuffle=False,  # the data set shuffles
                verbose=0,
                callbacks=[
                    callbacks.StopOnDivergence(first_step, manager),
                    callbacks.TrainingLog(
                        first_step,
                        options.batch_size,
                        writer,
                        lambda: strategy.traffic,
                        learning_rate,
                        functools.partial(objective.entropy_loss, options.net),
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
    step = int(model.optimizer.iterations.numpy())
    callbacks.log(f"finished at step {step}, saved as {manager.latest_checkpoint}")
    return TrainResult(step, manager.latest_checkpoint, strategy.traffic)


def _examples(options, first_step):
    if options.benchmark_mode:
        examples = synthetic.load(
            options.dataset_name,
            options.batch_size,
            options.image_size,
            seed=options.seed,
            start_step=first_step,
        )
    else:
        examples = data.load(
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
    return objective.with_targets(options.net, examples)
