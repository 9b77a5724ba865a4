"""A run in its folder: opened, trained with stock `model.fit`, logged, saved."""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf.common import preemption, tags
from terngrad_tf.distribute import (
    Membership,
    StepAgreement,
    StragglerMonitor,
    Telemetry,
    TernGradStrategy,
    advise,
    broadcast_variables,
    local_steps_optimizer,
    peer_errors,
    run_on_all,
    run_on_chief,
)
from terngrad_tf.distribute.communication.peers import report_end
from terngrad_tf.distribute.exchange.traffic import Traffic
from terngrad_tf.training.configs.config import values_before
from terngrad_tf.training.configs.run_config import RunConfig
from terngrad_tf.training.input import inputs
from terngrad_tf.training.input.data import DatasetShard
from terngrad_tf.training.log import log, log_freq
from terngrad_tf.training.logs import callbacks, screen, summaries, triggers
from terngrad_tf.training.logs.board import Board
from terngrad_tf.training.logs.epoch_log import EpochLog
from terngrad_tf.training.optimization import local_steps, losses
from terngrad_tf.training.optimization.statistics_average import StatisticsAverage
from terngrad_tf.training.runs import cluster, saving
from terngrad_tf.training.runs.training_log import TrainingLog
from terngrad_tf.training.storage import checkpoints
from terngrad_tf.training.storage.run_folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Run:
    """A run with its model, data and progress.

    Args:
        config: has known steps.
        manager: the chief's, or of a process that keeps copies; None on others.
        board: the chief's; None on others and if no steps remain.
        shared: variables that are equal on all processes after each step.
    """

    config: RunConfig
    strategy: TernGradStrategy
    shard: DatasetShard
    model: keras.Model
    first_step: int
    manager: tf.train.CheckpointManager | None
    board: Board | None
    shared: Sequence[keras.Variable | tf.Variable]
    membership: Membership | None = None

    @property
    def is_finished(self) -> bool:
        """True if no steps remained when the run was opened."""
        return self.first_step >= self.config.max_steps

    def watch_newcomers(self) -> contextlib.AbstractContextManager[Callable[[], str]]:
        """Returns `Membership.watch` if workers may come and go."""
        if self.membership is None:
            return contextlib.nullcontext(lambda: "")
        return self.membership.watch()


@contextlib.contextmanager
def claim_folder(
    config: RunConfig,
    shard: DatasetShard,
    network: Mapping[str, Any],
    identity: Mapping[str, Any],
    checkpoint: tf.train.Checkpoint,
    steps_before: int = 0,
) -> Iterator[tf.train.CheckpointManager]:
    """Claims a run's folder; `config` has known steps."""
    details = {
        "max_steps": config.max_steps,
        "steps_per_epoch": shard.num_examples / config.data.batch_size,
        "model": network,
        "steps_before": steps_before,
        "options": config.values(),
        "working_folder": _working_folder(),
    }
    before = values_before(type(config))
    with contextlib.closing(RunFolder(config.train_dir, identity, before, **details)) as folder:
        yield checkpoints.make_manager(checkpoint, folder.path, config.checkpoints.max_to_keep)


def _working_folder():
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return None  # removed


@contextlib.contextmanager
def open_folder(
    config: RunConfig, shard: DatasetShard, *, start: Callable[[], int], **folder: Any
) -> Iterator[tuple[int, tf.train.CheckpointManager]]:
    """Claims a run's folder and restores the run; yields the steps done and the manager.

    Without a checkpoint, `start` initializes the variables and returns the number of steps done.
    """
    with claim_folder(config, shard, **folder) as manager:
        step = checkpoints.resume(manager)
        yield start() if step is None else step, manager


@contextlib.contextmanager
def open_run(
    config: RunConfig,
    strategy: TernGradStrategy,
    shard: DatasetShard,
    model: keras.Model,
    variables: Sequence[tf.Variable],
    membership: Membership | None = None,
    *,
    start: Callable[[], int],
    identity: Mapping[str, Any],
    steps_before: int = 0,
    **folder: Any,
) -> Iterator[Run]:
    """Opens the chief's folder and restores the run on all processes.

    Args:
        variables: variables of the run's checkpoint; the chief sends them to the other processes.
        start, **folder: see `open_folder`.
    """
    folder["identity"] = {**identity, **cluster.cluster_identity(strategy, shard)}
    folder["steps_before"] = steps_before
    manager = board = None
    with contextlib.ExitStack() as stack:

        def begin():
            nonlocal manager
            opened = open_folder(config, shard, start=start, **folder)
            step, manager = stack.enter_context(opened)
            return step

        def keep_copies():
            nonlocal manager
            if membership.saves and not strategy.is_chief:
                manager = stack.enter_context(claim_folder(config, shard, **folder))

        first_step = run_on_chief(strategy, "first step", begin)
        if membership is not None and membership.num_copies:
            run_on_all(strategy, "folder of a copy", keep_copies)
        broadcast_variables(strategy, variables)
        if (
            strategy.is_chief
            and manager is not None
            and (first_step < config.max_steps or config.max_steps == 0)
        ):
            board = Board(manager.directory, steps_before, first_step)
            stack.enter_context(contextlib.closing(board))
        shared = local_steps.without_statistics(variables, model)
        yield Run(config, strategy, shard, model, first_step, manager, board, shared, membership)


def fit(
    run: Run,
    *,
    learning_rate: Callable[[int], Any] | None = None,
    traffic: Callable[[int], Traffic | None] | None = None,
    log_steps: int | None = None,
    log_epochs: bool = False,
    more_callbacks: Sequence[keras.callbacks.Callback] = (),
    average: StatisticsAverage | None = None,
) -> None:
    """Trains up to `max_steps`, with log lines, TensorBoard, checkpoints, progress.

    In a cluster, all processes must call it and print log lines; the chief does everything else.

    Args:
        learning_rate: function of the number of steps done.
        traffic: function from the number of steps done to the next step's `Traffic`. Default: the
            strategy's.
        log_steps: default for steps between log lines, and maximum number of steps between entries
            for TensorBoard. Default 10, in a cluster 30.
        more_callbacks: keep the run's files; called before the others.

    Raises:
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PreemptedError: SIGTERM asked a process of the run to stop; the run is saved.
        NewcomersError: workers wait to take part; the run is saved.
    """
    config, strategy, first_step = run.config, run.strategy, run.first_step
    averaging = average.callback(first_step) if average else None
    # `peer_errors` is inside: a lost peer must not be taken for a corrupt record.
    with (
        config.data.locate_corrupt_records(),
        peer_errors(strategy.tasks),
        StepAgreement(strategy, first_step) as agreement,
        preemption.stops_on_sigterm(
            lambda: agreement.ask(saving.STOP),
            # Processes of a cluster stop together, after a step of all.
            lambda: strategy.num_processes > 1 or agreement.step > first_step,
            lambda error: report_end(strategy.tasks, error),
        ) as last_step_ended,
        run.watch_newcomers() as newcomers,
    ):
        saver = saving.SaveCheckpoints(
            run,
            saving.schedule_of(run),
            agreement,
            exchanged=averaging.follow if averaging else lambda: None,
            last_step_ended=last_step_ended,
            newcomers=newcomers,
        )
        with screen.show() as shown:
            first_batch = local_steps.own_steps(run.model.optimizer, first_step)
            run.model.fit(
                inputs.batches(config, first_batch, run.shard, strategy),
                steps_per_epoch=config.max_steps - first_step,
                shuffle=False,  # the data set is shuffled
                verbose=0,
                callbacks=[
                    callbacks.StopOnDivergence(first_step, run.manager),
                    *([averaging] if averaging else []),
                    *(more_callbacks if run.manager else []),
                    *([_epoch_log(run)] if log_epochs else []),
                    *_logs(run, learning_rate, traffic, log_steps, shown),
                    saver,
                ],
            )
        _log_advice(run)


def _epoch_log(run):
    entropy_loss = functools.partial(losses.cross_entropy, run.config.model.net)
    return EpochLog(
        run.first_step, run.config.data.batch_size, run.shard.num_examples, entropy_loss
    )


def _logs(run, learning_rate, traffic, log_steps, shown):
    """Yields the callbacks that report steps; `shown`: see `screen.show`, others: see `fit`."""
    config, strategy = run.config, run.strategy
    log_steps = log_steps or log_freq(strategy.tasks)
    line_steps = config.checkpoints.log_freq or log_steps
    yield TrainingLog(
        run,
        learning_rate=learning_rate,
        traffic=traffic or strategy.traffic_of,
        freq=math.gcd(log_steps, line_steps),
        line_freq=line_steps,
        screen=shown,
    )
    yield StragglerMonitor(report=log, write=_waits(run, shown) if run.board else None)
    if strategy.is_chief:
        yield _histograms(run)
    if config.checkpoints.telemetry_freq:
        yield _telemetry(run)
    if strategy.is_chief and shown is None:
        yield callbacks.ProgressBar(run.first_step, config.max_steps)


def _waits(run, shown):
    """Writes the processes' waits for each other, for TensorBoard and on a `Screen`."""
    tasks = run.strategy.tasks
    others = [name for name in tasks.names if name != tasks.names[tasks.index]] if tasks else []
    if shown is not None:
        for name in others:
            shown.note(name, "in step")

    def write(scalars, step):
        run.board.scalars(scalars, step)
        if shown is not None:
            for name in others:
                wait = scalars[tags.wait_seconds(name)]
                shown.note(name, f"waits {1e3 * wait:.0f} ms")

    return write


def _log_advice(run):
    """Logs expected step times with other wires; all processes measure the links."""
    if not run.config.checkpoints.telemetry_freq or run.strategy.num_processes == 1:
        return
    # With local steps, telemetry measures no training step.
    if local_steps_optimizer(run.model.optimizer) is None:
        advice = advise(run.strategy)
        if advice is not None and run.strategy.is_chief:
            log(advice)


def _telemetry(run):
    def write(scalars, step):
        # `TrainingLog` writes these two for every step.
        written = {tags.RECEIVED_BYTES, tags.COMPRESSION_RATIO}
        run.board.scalars({t: value for t, value in scalars.items() if t not in written}, step)

    return Telemetry(run.config.train_dir, run.config.checkpoints.telemetry_freq, write=write)


def _histograms(run):
    """Writes histograms of the weights at each save, and of the gradients recorded then or next."""
    config, optimizer = run.config.checkpoints, run.model.optimizer
    local = local_steps_optimizer(optimizer)
    # The statistics of gradients are recorded in every `records`th exchange.
    records = local_steps.exchanges(optimizer, config.statistics_freq)
    if config.save_summaries_secs is not None:
        weights_due = triggers.summaries(config, config.statistics_freq)
        gradients_due = triggers.summaries(config, records)
    else:
        saves = local_steps.exchanges(optimizer, config.save_iter)
        weights_due = triggers.summaries(config, config.save_iter)
        gradients_due = triggers.summaries(config, math.ceil(saves / records) * records)
    # By time all weights are exchanged at once, also by saving, which comes later in a step.
    at_once = local is None or local.sync_seconds

    def statistics():
        exchanged = at_once or local_steps.has_exchanged(optimizer)
        return run.strategy.gradient_statistics if exchanged else {}

    return summaries.Histograms(
        run.first_step,
        weights_due,
        gradients_due,
        run.board,
        statistics,
    )
