"""Trains a network in the subspace of its earlier weights: `train_in_subspace`."""

import dataclasses
import math
import pathlib

import tensorflow as tf

from terngrad_tf.distribute import run_on_chief
from terngrad_tf.subspace import SubspaceBFGS, SubspaceModel, SubspaceSGD, update_batch_norm
from terngrad_tf.subspace.sharing import share_subspace
from terngrad_tf.training import (
    callbacks,
    checkpoints,
    cluster,
    objective,
    schedules,
    session,
    subspace_source,
)
from terngrad_tf.training.errors import UserError, as_user_error
from terngrad_tf.training.subspace_log import Moves
from terngrad_tf.training.train_options import TrainOptions

# Options that say how the weights move, next to those of `TrainOptions`.
_OPTIMIZER_OPTIONS = {
    "bfgs": ("rho", "sigma", "alpha", "gamma", "residual_every"),
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
        is_chief: whether this process keeps the run's folder.
    """

    step: int
    checkpoint: str
    start: object
    subspace: object
    train_options: object
    is_chief: bool


def train_in_subspace(options, **cluster_options):
    """Trains for `options.epochs`, going on where a run in `train_dir` stopped.

    At the end the batch-norm statistics are computed anew from the training data.

    In a cluster every process calls it with the same options. The chief alone uses `train_dir`,
    the weights to start from, the snapshots and the file of the subspace, and sends the others what
    they need of it. `data_dir` is as for `train`.

    Args:
        options: `SubspaceOptions`.
        **cluster_options: `cluster_resolver` and `start_timeout`, as for `train`.

    Returns:
        A `SubspaceResult`.

    Raises:
        UserError: an option, the weights to start from, the subspace or the folder does not fit.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PeerError: another process of the cluster failed, is gone, or was started differently.
    """
    with as_user_error():
        plan = _plan_of_workers(options)
        strategy = session.make_strategy(plan, lambda: dataset.num_examples, **cluster_options)
    with cluster.failing_together(strategy):
        cluster.check_options(options, strategy)
        start = _find_start(options, strategy)
        options = _with_learning_rate(options, start)
        plan = _plan_of_network(options, plan, start)
        dataset = session.describe(plan, strategy)
        steps_per_epoch = dataset.num_examples / options.batch_size
        plan = dataclasses.replace(
            plan,
            max_steps=math.ceil(options.epochs * steps_per_epoch),
            save_iter=max(1, math.ceil(steps_per_epoch)),
        )
        if not strategy.is_chief:
            callbacks.log(f"waiting up to {options.timeout:g} sec for the chief's subspace")
        subspace = share_subspace(
            strategy, lambda: subspace_source.find_subspace(options, start), options.timeout
        )
        with as_user_error(), strategy.scope():
            built = _build(options, plan, dataset, subspace)
        return _run(options, plan, dataset, start, subspace, strategy, *built)


def _plan_of_workers(options):
    """`TrainOptions` without what depends on the weights to start from."""
    names = (
        *("train_dir", "data_dir", "subset", "batch_size", "seed", "num_nodes", "num_gpus"),
        *("grad_bits", "clip_factor", "num_readers", "num_preprocess_threads"),
        "skip_corrupt_records",
    )
    return TrainOptions(
        dataset_name=options.dataset_name or "",
        max_to_keep=2,
        # How long an epoch is, at whose end gradients are looked at, is not known yet.
        save_iter=1,
        **{name: getattr(options, name) for name in names},
    )


def _plan_of_network(options, plan, start):
    """The plan for the network and the data of the run to start from."""
    before = start.run["identity"]
    names = ("net", "weight_decay", "dropout_keep_prob", "label_smoothing")
    return dataclasses.replace(
        plan,
        dataset_name=options.dataset_name or before["dataset_name"],
        image_size=start.run["model"]["image_size"],
        num_classes=before.get("num_classes"),
        **{name: before[name] for name in names},
    )


def _find_start(options, strategy):
    """The chief's `subspace_source.Start`, on all processes."""

    def find():
        start = subspace_source.find_start(options.pretrained_weight_path)
        return [start.path, str(start.folder), start.run]

    path, folder, run = run_on_chief(strategy, "weights to start from", find)
    return subspace_source.Start(path, pathlib.Path(folder), run)


def _with_learning_rate(options, start):
    """The options with the rate of the run to start from where "sgd" has none."""
    if options.optimizer != "sgd" or options.learning_rate is not None:
        return options
    rate = start.run["identity"].get("initial_learning_rate")
    if rate is None:
        raise UserError(
            "`learning_rate` must be given: the run to start from has none. "
            f"Received: pretrained_weight_path={options.pretrained_weight_path!r}"
        )
    return dataclasses.replace(options, learning_rate=rate)


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
        return SubspaceBFGS(subspace, shard_basis=options.shard_basis, **arguments), None
    rate = schedules.Linear(arguments.pop("learning_rate"), 0, max_steps)
    return SubspaceSGD(subspace, rate, shard_basis=options.shard_basis, **arguments), rate


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


def _run(options, plan, dataset, start, subspace, strategy, network, model, learning_rate):
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

    def begin():
        with as_user_error():
            # Not to the compiled model, which would also take the state of its optimizer.
            start.restore(network)
            if options.start_at_mean:
                subspace.assign_mean(network)
                callbacks.log("moved to the mean of the snapshots")
        return 0

    with cluster.opened(
        plan,
        strategy,
        checkpoint,
        [*(v.value for v in network.variables + optimizer.variables), finished],
        begin,
        _identity(options, plan, start, subspace) | cluster.identity(strategy, dataset),
        max_steps=plan.max_steps,
        steps_per_epoch=dataset.num_examples / plan.batch_size,
        model=start.run["model"],
    ) as (first_step, manager):
        # Written once all else is found to be good.
        if strategy.is_chief and subspace.path is None:
            subspace.save(subspace_source.subspace_path(options))
        if first_step == 0 and (start.is_snapshot or options.start_at_mean):
            _update_batch_norm(model, plan, dataset, strategy)
        if first_step < plan.max_steps:
            moves = Moves(subspace, optimizer, strategy, first_step)
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
                log_epochs=True,
                more=moves.with_writer,
            )
        if not finished.numpy():
            _update_batch_norm(model, plan, dataset, strategy)
            finished.assign(True)
            if strategy.is_chief:
                checkpoints.save(manager, plan.max_steps)
        newest = cluster.finish(strategy, manager)
    return SubspaceResult(session.step_of(newest), newest, start, subspace, plan, strategy.is_chief)


def _update_batch_norm(model, plan, dataset, strategy):
    steps = math.ceil(dataset.num_examples / plan.batch_size)
    update_batch_norm(model, session.examples(plan, 0, dataset, strategy), steps)
