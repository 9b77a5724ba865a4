"""The strategy of a run, and what its processes do together; one alone does the same.

The chief alone reads and writes the run's folder. Where one process fails, all end with its reason.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from terngrad_tf.distribute import (
    ClusterOptions,
    NewcomersError,
    TernGradStrategy,
    all_gather_object,
    compare_processes,
    peer_errors,
    propagate_errors,
    run_on_chief,
)
from terngrad_tf.training import checkpoints
from terngrad_tf.training.data import DatasetShard
from terngrad_tf.training.errors import DivergedError, UserError
from terngrad_tf.training.log import log
from terngrad_tf.training.preemption import PreemptedError
from terngrad_tf.training.run_config import RunConfig


class FloatEpochs:
    """Tells the steps of epochs with float gradients: of each so many epochs the last.

    Args:
        config: `RunConfig`.
        num_examples: examples an epoch. Default 0: set before the first step is asked for.
        steps: steps from one exchange to the next, which are counted here. Default 1.
    """

    def __init__(self, config: RunConfig, num_examples: int = 0, steps: int = 1):
        self.freq = config.gradients.floating_grad_epoch
        self.num_examples = num_examples
        self._batch_size = steps * config.data.batch_size

    def __call__(self, step: int | tf.Tensor) -> bool | tf.Tensor:
        """Whether an exchange is in such an epoch; `step` are those before, an int or tensor."""
        if not self.freq:
            return False
        epoch = step * self._batch_size // self.num_examples
        return epoch % self.freq == self.freq - 1


def make_strategy(
    config: RunConfig,
    float_epochs: FloatEpochs,
    *,
    statistics_freq: int,
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
    **meeting: Any,
) -> TernGradStrategy:
    """The `TernGradStrategy` of a run; in a cluster it waits for the other processes.

    Args:
        config: `RunConfig`.
        float_epochs: `FloatEpochs`.
        statistics_freq: steps from one record of the gradients' values to the next.
        cluster_resolver: as for `TernGradStrategy`.
        **meeting: `start_timeout` and `token`, as for `ClusterOptions`.

    Raises:
        ValueError: an option is out of range.
        PeerError: another process is missing or was started differently.
    """
    # TernGrad's commands ask for GPUs; where there is none, their replicas run on the CPU.
    has_gpu = bool(tf.config.get_visible_devices("GPU"))
    return TernGradStrategy(
        config.cluster.num_nodes,
        quantization=config.gradients.quantization(
            config.seed, float_epochs if float_epochs.freq else None
        ),
        wire=config.gradients.wire,
        num_gpus=config.cluster.num_gpus if has_gpu else None,
        statistics_freq=statistics_freq,
        telemetry_freq=config.checkpoints.telemetry_freq,
        cluster_resolver=cluster_resolver,
        cluster_options=ClusterOptions(communication=config.cluster.communication, **meeting),
    )


@contextlib.contextmanager
def fail_together(strategy: TernGradStrategy) -> Iterator[None]:
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
        except (DivergedError, PreemptedError, NewcomersError):
            # All raise it; the first to end must not take the last messages of the step along.
            all_gather_object(strategy, "end of training", "stopped", is_last=lambda values: True)
            raise


def compare_configs(
    config: RunConfig, strategy: TernGradStrategy, shares_batches: bool = False
) -> None:
    """Refuses processes with different options, and a batch that cannot be divided.

    Args:
        config: `RunConfig`.
        strategy: the strategy.
        shares_batches: whether batches need not divide evenly, see `data.DatasetShard`. Default
            False.

    Raises:
        UserError: `batch_size` is not divisible by the number of replicas.
        PeerError: processes differ.
    """
    compare_processes(strategy, "options", config.values("shared"))
    num_replicas = strategy.num_replicas_in_sync
    if config.data.batch_size % num_replicas and not shares_batches:
        raise UserError(
            f"`batch_size` must be divisible by the number of workers, {num_replicas}. "
            f"Received: batch_size={config.data.batch_size}"
        )


def cluster_identity(strategy: TernGradStrategy, shard: DatasetShard) -> dict[str, Any]:
    """What makes a run of a cluster another one than the next, besides its configuration.

    Args:
        strategy: the strategy.
        shard: `data.DatasetShard`.
    """
    if shard.shares_batches:
        return {"shares_batches": True}
    if strategy.num_processes == 1:
        return {}
    return {"num_hosts": strategy.num_processes, "shares_data": shard.num_shards > 1}


def finish(strategy: TernGradStrategy, manager: tf.train.CheckpointManager | None) -> str:
    """Waits until all processes are done with the run.

    Args:
        strategy: the strategy.
        manager: `tf.train.CheckpointManager` of the chief; None on the others.

    Returns:
        Path of the newest checkpoint in the chief's folder, on all processes.

    Raises:
        PeerError: another process failed.
    """
    checkpoint = run_on_chief(strategy, "last checkpoint", lambda: manager.latest_checkpoint)
    if strategy.is_chief:
        log_end(checkpoint)
    all_gather_object(strategy, "end of training", "trained", is_last=lambda values: True)
    return checkpoint


def log_end(checkpoint: str) -> None:
    """Tells how far a run has come; `checkpoint` is the path of its newest."""
    log(f"finished at step {checkpoints.step_of(checkpoint)}, saved as {checkpoint}")
