"""Actions of a run's processes together, or of the chief alone.

Only the chief uses the run's folder. If one process fails, all end with its reason.
"""

import concurrent.futures
import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from terngrad_tf.common.preemption import PreemptedError
from terngrad_tf.distribute import (
    NewcomersError,
    TernGradStrategy,
    all_gather_object,
    compare_processes,
    peer_errors,
    propagate_errors,
    run_on_chief,
)
from terngrad_tf.training.configs.run_config import RunConfig
from terngrad_tf.training.errors import DivergedError, require
from terngrad_tf.training.input.data import DatasetShard
from terngrad_tf.training.log import log
from terngrad_tf.training.storage import checkpoints


class FloatEpochs:
    """Selects the steps of epochs with float gradients: the last of every N epochs.

    Args:
        num_examples: examples per epoch, known before the first call.
        steps: number of steps per exchange; exchanges are counted.
    """

    def __init__(
        self, config: RunConfig, num_examples: concurrent.futures.Future[int], steps: int = 1
    ) -> None:
        self.freq = config.gradients.floating_grad_epoch
        self._num_examples = num_examples
        self._batch_size = steps * config.data.batch_size

    @tf.autograph.experimental.do_not_convert
    def __call__(self, step: int | tf.Tensor) -> bool | tf.Tensor:
        """Returns True if the exchange after `step` earlier ones is selected."""
        if not self.freq:
            return False
        epoch = step * self._batch_size // self._num_examples.result(timeout=0)
        return epoch % self.freq == self.freq - 1


@contextlib.contextmanager
def fail_together(strategy: TernGradStrategy) -> Iterator[None]:
    """Context of a joint operation: if one process fails, the others end too, with the reason.

    Raises:
        PeerError: another process failed, is gone or unreachable.
    """
    with propagate_errors(strategy.tasks):
        try:
            with peer_errors(strategy.tasks):
                yield
        except (DivergedError, PreemptedError, NewcomersError):
            # All raise it; a process that exits early must not discard messages of the step.
            all_gather_object(strategy, "end of training", "stopped", is_last=lambda values: True)
            raise


def compare_configs(
    config: RunConfig, strategy: TernGradStrategy, shares_batches: bool = False
) -> None:
    """Refuses processes with different options, and a batch that cannot be divided.

    Batches of processes that share them may divide unevenly.
    """
    compare_processes(strategy, "options", config.values("shared"))
    num_replicas, batch_size = strategy.num_replicas_in_sync, config.data.batch_size
    rule = f"must be divisible by the number of workers, {num_replicas}"
    require(shares_batches or batch_size % num_replicas == 0, "batch_size", rule, batch_size)


def cluster_identity(strategy: TernGradStrategy, shard: DatasetShard) -> dict[str, Any]:
    """Returns values that distinguish a cluster's run, besides its configuration."""
    if shard.shares_batches:
        return {"shares_batches": True}
    if strategy.num_processes == 1:
        return {}
    return {"num_hosts": strategy.num_processes, "shares_data": shard.num_shards > 1}


def finish(strategy: TernGradStrategy, manager: tf.train.CheckpointManager | None) -> str:
    """Waits until all processes have finished; returns the chief's newest checkpoint."""
    checkpoint = run_on_chief(strategy, "last checkpoint", lambda: manager.latest_checkpoint)
    if strategy.is_chief:
        log_end(checkpoint)
    all_gather_object(strategy, "end of training", "trained", is_last=lambda values: True)
    return checkpoint


def log_end(checkpoint: str) -> None:
    """Logs the final step of a run."""
    log(f"finished at step {checkpoints.step_of(checkpoint)}, saved as {checkpoint}")
