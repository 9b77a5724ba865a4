"""What is known of a run, stage by stage: `Joined` knows its processes, `Planned` its length."""

import concurrent.futures
import dataclasses
from typing import Any, Generic, TypeVar

from terngrad_tf.distribute import TernGradStrategy
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
    **cluster_options: Any,
) -> Joined[_Config]:
    """Creates the strategy of a run; in a cluster, waits for the other processes.

    Args:
        **cluster_options: see `cluster.make_strategy`.
    """
    num_examples: concurrent.futures.Future[int] = concurrent.futures.Future()
    float_epochs = cluster.FloatEpochs(config, num_examples, steps_per_exchange)
    strategy = cluster.make_strategy(
        config, float_epochs, statistics_freq=statistics_freq, **cluster_options
    )
    return Joined(
        config=config, strategy=strategy, shares_batches=shares_batches, num_examples=num_examples
    )
