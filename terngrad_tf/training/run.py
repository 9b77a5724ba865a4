"""A run in its folder: opened, trained with stock `model.fit`, logged, saved."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from terngrad_tf import tags
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
from terngrad_tf.training import (
    callbacks,
    checkpoints,
    cluster,
    inputs,
    local_steps,
    losses,
    preemption,
    saving,
    screen,
    summaries,
    triggers,
)
from terngrad_tf.training.board import Board
from terngrad_tf.training.config import values_before
from terngrad_tf.training.data import DatasetShard
from terngrad_tf.training.epoch_log import EpochLog
from terngrad_tf.training.log import log, log_freq
from terngrad_tf.training.run_config import RunConfig
from terngrad_tf.training.run_folder import RunFolder
from terngrad_tf.training.statistics_average import StatisticsAverage
from terngrad_tf.training.training_log import TrainingLog


@dataclasses.dataclass(frozen=True)
class Run:
    """What is trained, on what, and how far it is.

    Args:
        config: the configuration, its steps known.
        strategy: the strategy.
        shard: what this process reads of the data set.
        model: compiled network.
        first_step: steps done.
        manager: checkpoints of the chief, or of a process that keeps what the chief keeps; None on
            the others.
        board: `Board` of the chief; None on the others and where no step of any is left.
        shared: the variables that all processes hold alike after each step.
        membership: `Membership` where workers come and go; None where they do not.
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
        """Whether no step was left when it was opened."""
        return self.first_step >= self.config.max_steps

    def watch_newcomers(self) -> contextlib.AbstractContextManager[Callable[[], str]]:
        """As `Membership.watch`, where workers come and go."""
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
    """Claims a run's folder.

    Args:
        config: `RunConfig`, its steps known.
        shard: `data.DatasetShard`.
        network: what `run_folder` keeps of the network.
        identity: as for `RunFolder`.
        checkpoint: `tf.train.Checkpoint` of the run.
        steps_before: as for `Board`. Default 0.

    Yields:
        `tf.train.CheckpointManager`.

    Raises:
        UserError: the folder does not fit.
    """
    details = {
        "max_steps": config.max_steps,
        "steps_per_epoch": shard.num_examples / config.data.batch_size,
        "model": network,
        "steps_before": steps_before,
        "options": config.values(),
    }
    before = values_before(type(config))
    with contextlib.closing(RunFolder(config.train_dir, identity, before, **details)) as folder:
        yield checkpoints.make_manager(checkpoint, folder.path, config.checkpoints.max_to_keep)


@contextlib.contextmanager
def open_folder(
    config: RunConfig, shard: DatasetShard, *, start: Callable[[], int], **folder: Any
) -> Iterator[tuple[int, tf.train.CheckpointManager]]:
    """Claims a run's folder and brings the run to where it stopped.

    Args:
        config: `RunConfig`, its steps known.
        shard: `data.DatasetShard`.
        start: function, called where there is no checkpoint, that gives the variables their values
            and returns the number of steps done.
        **folder: `network`, `identity`, `checkpoint` and `steps_before`, as for `claim_folder`.

    Yields:
        (number of steps done, `tf.train.CheckpointManager`).

    Raises:
        UserError: the folder does not fit.
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
    **folder: Any,
) -> Iterator[Run]:
    """Opens the chief's folder and brings all processes to where the run stopped.

    Args:
        config: `RunConfig`, its steps known.
        strategy: the strategy.
        shard: `data.DatasetShard`.
        model: compiled `keras.Model`.
        variables: list of the variables of the run's checkpoint, of Keras or TensorFlow, which the
            other processes receive from the chief.
        membership: `Membership` where workers come and go. Default: they do not.
        **folder: `network`, `identity`, `checkpoint`, `start` and `steps_before`, as for
            `open_folder`.

    Yields:
        A `Run`.

    Raises:
        UserError: the folder does not fit.
        PeerError: another process failed.
    """
    folder["identity"] = folder["identity"] | cluster.cluster_identity(strategy, shard)
    manager = board = None
    with contextlib.ExitStack() as stack:

        def begin():
            nonlocal manager
            step, manager = stack.enter_context(open_folder(config, shard, **folder))
            return step

        first_step = run_on_chief(strategy, "first step", begin)
        if membership is not None and membership.num_copies:

            def keep():
                nonlocal manager
                if membership.saves and not strategy.is_chief:
                    own = {name: value for name, value in folder.items() if name != "start"}
                    manager = stack.enter_context(claim_folder(config, shard, **own))

            run_on_all(strategy, "folder of a copy", keep)
        broadcast_variables(strategy, variables)
        if (
            strategy.is_chief
            and manager is not None
            and (first_step < config.max_steps or config.max_steps == 0)
        ):
            board = Board(manager.directory, folder.get("steps_before", 0), first_step)
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

    In a cluster all processes call it and print log lines; all else is the chief's.

    Args:
        run: `Run`.
        learning_rate: function of the number of steps done. Default: there is none to tell.
        traffic: function of the number of steps done to the `Traffic` of the next one. Default: as
            the strategy counts it.
        log_steps: steps from one log line to the next where the configuration does not say it, and
            at most so many from one entry for TensorBoard to the next. Default 10, in a cluster 30.
        log_epochs: whether to print a line at the end of each epoch too. Default False.
        more_callbacks: Keras callbacks of those that keep the run's files, called before the
            others. Default: none.
        average: `StatisticsAverage` to update. Default: there is none.

    Raises:
        DivergedError: the loss or a weight is not finite; the last good checkpoint is kept.
        PreemptedError: SIGTERM told a process of the run to stop; it is saved.
        NewcomersError: workers wait to take part; it is saved.
    """
    config, strategy, first_step = run.config, run.strategy, run.first_step
    telemetry_freq = config.checkpoints.telemetry_freq
    net: Any = config.model.net  # known by now
    entropy_loss = functools.partial(losses.cross_entropy, net)
    log_steps = log_steps or log_freq(strategy.tasks)
    line_steps = config.checkpoints.log_freq or log_steps
    averaging = average.callback(first_step) if average else None
    by_epoch = (first_step, config.data.batch_size, run.shard.num_examples, entropy_loss)
    # Peers inside, so that a lost process is not looked for in the data.
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
        meetings = saving.Meetings(
            strategy, run.shared, agreement, last_step_ended, run.membership, newcomers
        )
        with screen.show() as shown:
            called = [
                callbacks.StopOnDivergence(first_step, run.manager),
                *([averaging] if averaging else []),
                *(more_callbacks if run.manager else []),
                *([EpochLog(*by_epoch)] if log_epochs else []),
                TrainingLog(
                    run,
                    learning_rate=learning_rate,
                    traffic=traffic or strategy.traffic_of,
                    freq=math.gcd(log_steps, line_steps),
                    line_freq=line_steps,
                    screen=shown,
                ),
                StragglerMonitor(report=log, write=_waits(run, shown) if run.board else None),
                *([_histograms(run)] if strategy.is_chief else []),
                *([_telemetry(run)] if telemetry_freq else []),
                saving.saving(run, meetings),
            ]
            if strategy.is_chief and shown is None:
                called.append(callbacks.ProgressBar(first_step, config.max_steps))
            first_batch = local_steps.own_steps(run.model.optimizer, first_step)
            run.model.fit(
                inputs.batches(config, first_batch, run.shard, strategy),
                steps_per_epoch=config.max_steps - first_step,
                shuffle=False,  # the data set shuffles
                verbose=0,
                callbacks=called,
            )
        if telemetry_freq and strategy.num_processes > 1:
            _log_advice(run)


def _waits(run, shown):
    """Writes how long processes wait for each other, for TensorBoard and on a `Screen`."""
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
    """Tells what steps would take with other wires; on all processes, which measure the links."""
    # Between local steps, what is measured is no step.
    if local_steps_optimizer(run.model.optimizer) is None:
        advice = advise(run.strategy)
        if advice is not None and run.strategy.is_chief:
            log(advice)


def _telemetry(run):
    def write(scalars, step):
        # Of single steps, these stand there already.
        told = {tags.RECEIVED_BYTES, tags.COMPRESSION_RATIO}
        run.board.scalars({t: value for t, value in scalars.items() if t not in told}, step)

    return Telemetry(run.config.train_dir, run.config.checkpoints.telemetry_freq, write=write)


def _histograms(run):
    config = run.config.checkpoints
    # The first record of gradients in each so many steps.
    freq = config.statistics_freq
    by_time = config.save_summaries_secs is not None
    gradients_freq = freq if by_time else -(-config.save_iter // freq) * freq
    return summaries.Histograms(
        run.first_step,
        triggers.summaries(config, freq if by_time else config.save_iter),
        triggers.summaries(config, gradients_freq),
        run.board,
        lambda: run.strategy.gradient_statistics,
    )
