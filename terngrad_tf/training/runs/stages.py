"""What is known of a run, stage by stage: `Joined` knows its processes, `Planned` its length."""

import concurrent.futures
import dataclasses
from typing import Any, Generic, TypeVar

import tensorflow as tf

from terngrad_tf.distribute import ClusterOptions, TernGradStrategy
from terngrad_tf.training.configs.run_config import RunConfig
from terngrad_tf.training.input import inputs
from terngrad_tf.training.input.data import DatasetShard
from terngrad_tf.training.runs import cluster

_Config = TypeVar("_Config", bound=RunConfig)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned(Generic[_Config]):
    """A run whose network, data and length are known: `config` has the network and steps."""

    config: _Config
    strategy: TernGradStrategy
    shard: DatasetShard


@dataclasses.dataclass(frozen=True, kw_only=True)
class Joined(Generic[_Config]):
    """A run whose processes have met.

    Attributes:
        num_examples: examples per epoch, which `plan` finds; the strategy waits for it in epochs
            with float gradients.
    """

    config: _Config
    strategy: TernGradStrategy
    shares_batches: bool
    num_examples: concurrent.futures.Future[int]

    def plan(self, config: _Config) -> Planned[_Config]:
        """Finds the data; called by all processes. `config` has the run's network."""
        shard = inputs.find_shard(config, self.strategy, self.shares_batches)
        self.num_examples.set_result(shard.num_examples)
        lasting = config.with_steps(shard.num_examples)
        return Planned(config=lasting, strategy=self.strategy, shard=shard)


def join(
    config: _Config,
    *,
    statistics_freq: int,
    steps_per_exchange: int = 1,
    shares_batches: bool = False,
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None,
    **meeting: Any,
) -> Joined[_Config]:
    """Creates the strategy of a run; in a cluster, waits for the other processes.

    Args:
        statistics_freq: steps between records of the gradients' values.
        **meeting: `start_timeout` and `token`, as for `ClusterOptions`.

    Raises:
        PeerError: another process is missing or was started differently.
    """
    num_examples: concurrent.futures.Future[int] = concurrent.futures.Future()
    float_epochs = cluster.FloatEpochs(config, num_examples, steps_per_exchange)
    # TernGrad's commands ask for GPUs; without any, replicas run on the CPU.
    has_gpu = bool(tf.config.get_visible_devices("GPU"))
    strategy = TernGradStrategy(
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
    return Joined(
        config=config, strategy=strategy, shares_batches=shares_batches, num_examples=num_examples
    )
