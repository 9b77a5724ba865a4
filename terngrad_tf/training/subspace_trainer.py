"""Trains a network in the subspace of its earlier weights: `train_in_subspace`."""

import dataclasses
import math
import pathlib

import tensorflow as tf

from terngrad_tf.subspace import SubspaceBFGS, SubspaceModel, SubspaceSGD, update_batch_norm
from terngrad_tf.training import callbacks, objective, schedules, session, subspace_source
from terngrad_tf.training.errors import as_user_error
from terngrad_tf.training.run_folder import RunFolder
from terngrad_tf.training.subspace_log import Moves
from terngrad_tf.training.train_options import TrainOptions

# Options that say how the weights move, next to those of `TrainOptions`.
_OPTIMIZER_OPTIONS = {
    "bfgs": ("rho", "sigma", "alpha", "gamma"),
    "sgd": ("learning_rate", "momentum"),
}


@dataclasses.dataclass(frozen=True)
class SubspaceResult:
    """What `train_in_subspace` leaves.

    Args:
        step: steps done.
        checkpoint: path of the newest checkpoint.
        start: `subspace_source.Start` that it went out from.
        subspace: the `Subspace`.
        train_options: `TrainOptions` that describe data, network and workers.
    """

    step: int
    checkpoint: str
    start: object
    subspace: object
    train_options: object


def train_in_subspace(options):
    """Trains for `options.epochs`, going on where a run in `train_dir` stopped.

    At the end the batch-norm statistics are computed anew from the training data.

    Args:
        options: `SubspaceOptions`.

    Returns:
        A `SubspaceResult`.

    Raises:
        UserError: an option, the weights to start from, the subspace or the folder does not fit.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
    """
    session.refuse_cluster()
    start = subspace_source.find_start(options.pretrained_weight_path)
    plan = _plan(options, start, max_steps=1, save_iter=1)
    dataset = session.describe(plan)
    steps_per_epoch = dataset.num_examples / options.batch_size
    plan = dataclasses.replace(
        plan,
        max_steps=math.ceil(options.epochs * steps_per_epoch),
        save_iter=max(1, math.ceil(steps_per_epoch)),
    )
    subspace = subspace_source.find_subspace(options, start)
    with as_user_error():
        strategy = session.make_strategy(plan, lambda: dataset.num_examples)
        with strategy.scope():
            built = _build(options, plan, dataset, subspace)
    # Claimed once all options are found to be good, and before anything is written.
    folder = RunFolder(
        options.train_dir,
        _identity(options, plan, start, subspace),
        max_steps=plan.max_steps,
        model=start.run["model"],
    )
    try:
        if subspace.path is None:
            subspace.save(subspace_source.subspace_path(options))
        return _run(options, plan, dataset, start, subspace, folder, strategy, *built)
    finally:
        folder.close()


def _plan(options, start, **steps):
    """`TrainOptions` of data, network and workers; the network is that of the run before."""
    before = start.run["identity"]
    shared = {
        name: getattr(options, name)
        for name in (
            *("train_dir", "data_dir", "subset", "batch_size", "seed", "num_nodes", "num_gpus"),
            *("grad_bits", "clip_factor", "num_readers", "num_preprocess_threads"),
            "skip_corrupt_records",
        )
    }
    return TrainOptions(
        dataset_name=options.dataset_name or before["dataset_name"],
        image_size=start.run["model"]["image_size"],
        max_to_keep=2,
        **{
            name: before[name]
            for name in ("net", "weight_decay", "dropout_keep_prob", "label_smoothing")
        },
        **steps,
        **shared,
    )


def _identity(options, plan, start, subspace):
    names = (
        *("dataset_name", "subset", "net", "image_size", "batch_size", "weight_decay"),
        *("dropout_keep_prob", "label_smoothing", "seed", "num_nodes", "grad_bits", "clip_factor"),
        "size_to_binarize",
    )
    identity = {name: getattr(plan, name) for name in names}
    used = ("start_at_mean", "epochs", "n_components", *_OPTIMIZER_OPTIONS[options.optimizer])
    identity |= {name: getattr(options, name) for name in used}
    identity["optimizer"] = f"subspace_{options.optimizer}"
    return identity | {
        "pretrained_weights": pathlib.Path(start.path).name,
        "subspace_fingerprint": subspace.fingerprint,
    }


def _optimizer(options, subspace, max_steps):
    """The optimizer and its learning rate, None where there is none."""
    arguments = {name: getattr(options, name) for name in _OPTIMIZER_OPTIONS[options.optimizer]}
    if options.optimizer == "bfgs":
        return SubspaceBFGS(subspace, **arguments), None
    rate = schedules.Linear(arguments.pop("learning_rate"), 0, max_steps)
    return SubspaceSGD(subspace, rate, **arguments), rate


def _build(options, plan, dataset, subspace):
    """The network, the compiled model of its layers, and the learning rate."""
    network = session.build_network(plan, dataset)
    model = SubspaceModel(network.input, network.output)
    optimizer, learning_rate = _optimizer(options, subspace, plan.max_steps)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer,
        **objective.compile_arguments(plan.net, plan.label_smoothing),
        # XLA leaves out the strategy's reduction where every device is a GPU.
        jit_compile=False,
    )
    return network, model, learning_rate


def _run(options, plan, dataset, start, subspace, folder, strategy, network, model, learning_rate):
    optimizer = model.optimizer
    with strategy.scope():
        # Whether the batch-norm statistics already belong to the last weights.
        finished = tf.Variable(False, name="batch_norm_updated")
    checkpoint = tf.train.Checkpoint(
        model=network,
        optimizer=optimizer,
        random=session.random_states(network),
        batch_norm_updated=finished,
    )
    manager = session.make_manager(checkpoint, plan, folder)
    first_step = session.resume(manager)
    if first_step is None:
        first_step = 0
        with as_user_error():
            # Not to the compiled model, which would also take the state of its optimizer.
            start.restore(network)
            if options.start_at_mean:
                subspace.assign_mean(network)
                callbacks.log("moved to the mean of the snapshots")
        if start.is_snapshot or options.start_at_mean:
            _update_batch_norm(model, plan, dataset)
    if first_step < plan.max_steps:
        moves = Moves(subspace, optimizer, plan.num_nodes, lambda: strategy.traffic, first_step)
        session.fit(
            plan,
            strategy,
            model,
            dataset,
            manager,
            first_step,
            learning_rate=learning_rate,
            traffic=moves.traffic,
            log_every=1,
            more=moves.with_writer,
        )
    if not finished.numpy():
        _update_batch_norm(model, plan, dataset)
        finished.assign(True)
        manager.save(checkpoint_number=plan.max_steps)
    step = session.step_of(manager.latest_checkpoint)
    callbacks.log(f"finished at step {step}, saved as {manager.latest_checkpoint}")
    return SubspaceResult(step, manager.latest_checkpoint, start, subspace, plan)


def _update_batch_norm(model, plan, dataset):
    steps = math.ceil(dataset.num_examples / plan.batch_size)
    update_batch_norm(model, session.examples(plan, 0), steps)
