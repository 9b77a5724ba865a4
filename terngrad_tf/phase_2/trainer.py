"""Trains a network in the subspace of its earlier weights: `train_in_subspace`."""

import dataclasses
import math
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.distribute import run_on_chief
from terngrad_tf.phase_2 import source
from terngrad_tf.phase_2.config import SubspaceConfig, SubspaceDataConfig
from terngrad_tf.phase_2.moves import Moves
from terngrad_tf.phase_2.source import Start
from terngrad_tf.subspace import (
    Subspace,
    SubspaceBFGS,
    SubspaceModel,
    SubspaceSGD,
    update_batch_norm,
)
from terngrad_tf.subspace.components.sharing import share_subspace
from terngrad_tf.training.errors import UserError, as_user_error, writing
from terngrad_tf.training.input import inputs
from terngrad_tf.training.log import log
from terngrad_tf.training.network import networks
from terngrad_tf.training.optimization import losses, schedules
from terngrad_tf.training.runs import cluster, stages
from terngrad_tf.training.runs.run import fit, open_run
from terngrad_tf.training.storage import checkpoints


@dataclasses.dataclass(frozen=True)
class SubspaceResult:
    """Result of `train_in_subspace`.

    Args:
        step: number of steps done.
        checkpoint: path of the newest checkpoint.
        start: `source.Start` of the run.
        subspace: the `Subspace`.
        config: the run's `SubspaceConfig`, with the initial run's network.
        is_chief: whether this process keeps the run's folder.
    """

    step: int
    checkpoint: str
    start: Start
    subspace: Subspace
    config: SubspaceConfig
    is_chief: bool


def train_in_subspace(
    config: SubspaceConfig,
    check_data: Callable[[SubspaceDataConfig], object] = lambda data: None,
    **cluster_options: Any,
) -> SubspaceResult:
    """Trains for `config.epochs`, and resumes an existing run in `train_dir`.

    At the end, batch-norm statistics are recomputed from the training data.

    In a cluster, every process must call it with the same options. Only the chief uses `train_dir`,
    the initial weights, the snapshots and the subspace's file. `data_dir`: see `train`.

    Args:
        config: `SubspaceConfig`.
        check_data: called on the chief with `config.data`, its data set known, before training.
        **cluster_options: `cluster_resolver`, `start_timeout` and `token`, see `train`.

    Returns:
        A `SubspaceResult`.

    Raises:
        UserError: an option, the initial weights, the subspace or the folder is unsuitable.
        slim_data.DataError: the data is missing or damaged.
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PreemptedError: see `train`.
        PeerError: another process of the cluster failed, is gone, or was started differently.
    """
    with as_user_error():
        # The length of an epoch, at whose end gradients are recorded, is not known yet.
        joined = stages.join(config, statistics_freq=1, **cluster_options)
    with cluster.fail_together(joined.strategy):
        cluster.compare_configs(config, joined.strategy)
        start = _find_start(config, joined.strategy, check_data)
        planned = joined.plan(_of_run(config, start))
        subspace = _share_subspace(planned, start)
        with as_user_error(), planned.strategy.scope():
            built = _build(planned.config, planned.shard, subspace)
        return _run(planned, start, subspace, built)


@dataclasses.dataclass(frozen=True)
class _Built:
    """A network to train in a subspace, before any weight is restored.

    Attributes:
        finished: True if the batch-norm statistics belong to the last weights.
    """

    network: keras.Model
    model: SubspaceModel
    learning_rate: schedules.Linear | None
    finished: tf.Variable


def _share_subspace(planned, start):
    """Returns the chief's `Subspace` on all processes."""
    config, strategy = planned.config, planned.strategy
    if not strategy.is_chief:
        log(f"waiting up to {config.basis.timeout:g} sec for the chief's subspace")
    return share_subspace(
        strategy, lambda: source.find_subspace(config, start), config.basis.timeout
    )


def _run(planned, start, subspace, built):
    """Trains in the run's folder."""
    config, strategy = planned.config, planned.strategy
    network, model, finished = built.network, built.model, built.finished
    checkpoint = tf.train.Checkpoint(
        model=network,
        optimizer=model.optimizer,
        random=networks.random_states(network),
        batch_norm_updated=finished,
    )
    with open_run(
        config,
        strategy,
        planned.shard,
        model,
        [*network.variables, *model.optimizer.variables, finished],
        network=start.run["model"],
        identity=config.identity() | _origin(start, subspace),
        checkpoint=checkpoint,
        start=lambda: _move_to_start(config, start, subspace, network),
        steps_before=start.steps_before,
    ) as run:
        # Written after all other checks.
        if strategy.is_chief and subspace.path is None:
            path = source.subspace_path(config)
            with writing("pca_mat_path", path):
                subspace.save(path)
        if run.first_step == 0 and (start.is_snapshot or config.basis.start_at != "last"):
            _update_batch_norm(run)
        moves = Moves(run, subspace)
        if not run.is_finished:
            fit(
                run,
                learning_rate=built.learning_rate,
                traffic=moves.traffic,
                log_steps=1,
                log_epochs=True,
                more_callbacks=[moves],
            )
        if not finished.numpy():
            if run.board is not None and config.max_steps == 0:
                moves.write_place(network)
            _update_batch_norm(run)
            finished.assign(True)
            checkpoints.save(run.manager, model, config.max_steps)
        newest = cluster.finish(strategy, run.manager)
    step = checkpoints.step_of(newest)
    return SubspaceResult(step, newest, start, subspace, config, strategy.is_chief)


def _move_to_start(config, start, subspace, network):
    """Assigns the weights of step 0 to the network."""
    with as_user_error():
        # Not into the compiled model, which would also restore its optimizer.
        start.restore(network, average=config.basis.start_at == "average")
        if config.basis.start_at == "mean":
            source.assign_mean(config.basis.weight_load_dir, start, subspace, network)
            log("moved to the mean of the snapshots")
    return 0


def _find_start(config, strategy, check_data):
    """Returns the chief's `source.Start` on all processes."""

    def find():
        start = source.find_start(config.basis.pretrained_weight_path)
        check_data(source.with_network(config, start).data)
        return [start.path, str(start.folder), start.run]

    path, folder, run = run_on_chief(strategy, "weights to start from", find)
    return source.Start(path, pathlib.Path(folder), run)


def _of_run(config, start):
    """Returns the configuration with values from the initial run."""
    taken = {"start_at": source.start_at(config, start)}
    if config.optimizer.name == "sgd" and config.optimizer.learning_rate is None:
        taken["learning_rate"] = start.run["identity"].get("initial_learning_rate")
        if taken["learning_rate"] is None:
            raise UserError(
                "`learning_rate` must be given: the run to start from has none. Received: "
                f"pretrained_weight_path={config.basis.pretrained_weight_path!r}"
            )
    return source.with_network(config, start).changed(**taken)


def _origin(start, subspace):
    """Returns values that distinguish the run, besides its configuration."""
    return {
        "pretrained_weights": pathlib.Path(start.path).name,
        "subspace_fingerprint": subspace.fingerprint,
    }


def _build(config, shard, subspace):
    """Returns the network and the compiled model of its layers."""
    network = networks.build_network(config, shard)
    model = SubspaceModel(network.input, network.output)
    arguments = config.optimizer.arguments() | {"shard_basis": config.basis.shard_basis}
    if config.optimizer.name == "bfgs":
        learning_rate, optimizer = None, SubspaceBFGS(subspace, **arguments)
    else:
        steps = max(1, config.max_steps)  # a schedule of zero steps has no rate
        learning_rate = schedules.Linear(arguments.pop("learning_rate"), 0, steps)
        optimizer = SubspaceSGD(subspace, learning_rate, **arguments)
    optimizer.build(model.trainable_variables)
    model.compile(
        optimizer=optimizer,
        **losses.compile_arguments(config.model.net, config.model.label_smoothing),
        # XLA omits the strategy's reduction if every device is a GPU.
        jit_compile=False,  # pyright: ignore[reportArgumentType] (its type is that of "auto")
    )
    finished = tf.Variable(False, name="batch_norm_updated")
    return _Built(network, model, learning_rate, finished)


def _update_batch_norm(run):
    steps = math.ceil(run.shard.num_examples / run.config.data.batch_size)
    batches = inputs.batches(run.config, 0, run.shard, run.strategy)
    update_batch_norm(run.model, batches, steps)
