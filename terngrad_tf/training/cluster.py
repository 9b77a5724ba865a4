"""What the processes of a cluster do together around training; one alone does the same.

The chief alone reads and writes the run's folder. Where one process fails, all end with its reason.
"""

import contextlib

from terngrad_tf.distribute import (
    all_gather_object,
    broadcast_variables,
    compare_processes,
    peer_errors,
    propagate_errors,
    run_on_chief,
)
from terngrad_tf.training import callbacks, session
from terngrad_tf.training.errors import DivergedError, UserError
from terngrad_tf.training.run_folder import RunFolder


@contextlib.contextmanager
def failing_together(strategy):
    """Around what all processes do: where one fails, the others end too, and say why.

    Args:
        strategy: the strategy.

    Raises:
        PeerError: another process failed, is gone or out of reach.
    """
    with propagate_errors(strategy.tasks):
        try:
            with peer_errors(strategy.tasks):
                yield
        except DivergedError:
            # All raise it; the first to end must not take the last messages of the step along.
            all_gather_object(strategy, "end of training", "diverged", is_last=lambda values: True)
            raise


def check_options(options, strategy):
    """Refuses processes with different options, and a batch that cannot be divided.

    Args:
        options: `TrainOptions`.
        strategy: the strategy.

    Raises:
        UserError: `batch_size` is not divisible by the number of workers.
        PeerError: processes differ.
    """
    compare_processes(strategy, "options", options.facts())
    num_workers = strategy.num_replicas_in_sync
    if options.batch_size % num_workers:
        raise UserError(
            f"`batch_size` must be divisible by the number of workers, {num_workers}. "
            f"Received: batch_size={options.batch_size}"
        )


def identity(strategy, dataset):
    """What makes a run of a cluster another one than the next, besides its options.

    Args:
        strategy: the strategy.
        dataset: `data.Subset`.
    """
    if strategy.num_processes == 1:
        return {}
    return {"num_hosts": strategy.num_processes, "shares_data": dataset.num_shares > 1}


@contextlib.contextmanager
def opened(options, strategy, checkpoint, variables, start, identity, **details):
    """Claims the run's folder and brings all processes to where the run stopped.

    Args:
        options: `TrainOptions`.
        strategy: the strategy.
        checkpoint: `tf.train.Checkpoint` of the run.
        variables: list of the `tf.Variable`s in it, which the others receive from the chief.
        start: function that the chief calls where there is no checkpoint: gives the variables
            their values and returns the number of steps done.
        identity: as for `RunFolder`.
        **details: as for `RunFolder`.

    Yields:
        (number of steps done, `tf.train.CheckpointManager` on the chief and None on the others).

    Raises:
        UserError: the folder does not fit.
        PeerError: another process failed.
    """
    folder = manager = None

    def begin():
        nonlocal folder, manager
        folder = RunFolder(options.train_dir, identity, **details)
        manager = session.make_manager(checkpoint, options, folder)
        step = session.resume(manager)
        return start() if step is None else step

    try:
        first_step = run_on_chief(strategy, "first step", begin)
        broadcast_variables(strategy, variables)
        yield first_step, manager
    finally:
        if folder is not None:
            folder.close()


def finish(strategy, manager):
    """Waits until all processes are done with the run.

    Args:
        strategy: the strategy.
        manager: from `opened`.

    Returns:
        Path of the newest checkpoint in the chief's folder, on all processes.

    Raises:
        PeerError: another process failed.
    """
    checkpoint = run_on_chief(strategy, "last checkpoint", lambda: manager.latest_checkpoint)
    if strategy.is_chief:
        step = session.step_of(checkpoint)
        callbacks.log(f"finished at step {step}, saved as {checkpoint}")
    all_gather_object(strategy, "end of training", "trained", is_last=lambda values: True)
    return checkpoint
