"""Batches for training, and each process's share of the records."""

import dataclasses
import itertools
from collections.abc import Sequence

import tensorflow as tf

from terngrad_tf import models
from terngrad_tf.distribute import TernGradStrategy, run_on_all
from terngrad_tf.training.configs.run_config import RunConfig
from terngrad_tf.training.errors import UserError
from terngrad_tf.training.input import data, synthetic
from terngrad_tf.training.log import log
from terngrad_tf.training.optimization import losses


def find_shard(
    config: RunConfig, strategy: TernGradStrategy | None = None, shares_batches: bool = False
) -> data.DatasetShard:
    """Returns the `data.DatasetShard` on which a process of a run trains.

    All processes of `strategy` must call this.
    """
    if config.data.benchmark_mode:
        index = 0 if strategy is None else strategy.process_index
        shard = dataclasses.replace(synthetic.find_dataset(config.data), seed_offset=index)
    elif strategy is None or strategy.num_processes == 1:
        shard = data.find_dataset(config.data)
    else:
        shard = _find_in_cluster(config, strategy, shares_batches)
    return dataclasses.replace(shard, shares_batches=shares_batches)


def _find_in_cluster(config, strategy, shares_batches):
    def look():
        own = data.find_dataset(config.data)
        return [data.fingerprint(config.data), own.num_examples, own.num_classes, own.channels]

    found = run_on_all(strategy, "data set", look)
    fingerprints, counts, outputs, channels = zip(*found, strict=True)
    if len(set(outputs)) > 1:
        raise UserError(
            "`data_dir` must have a labels.txt that names the same classes on all workers. "
            f"Received: networks of {', '.join(map(str, outputs))} outputs"
        )
    index = strategy.process_index
    own = data.DatasetShard(outputs[index], channels[index], counts[index])
    shard = data.among_processes(own, fingerprints, counts, index)
    files_differ = shard.num_shards == 1
    if shares_batches and files_differ:
        raise UserError(
            "`data_dir` must hold the same files on all workers where these may come and go. "
            f"Received: other files on each, of {', '.join(map(str, counts))} examples"
        )
    if strategy.is_chief:
        how = f"share {counts[index]} examples"
        if files_differ:
            how = f"have examples of their own: {', '.join(map(str, counts))}"
        log(f"{len(counts)} workers {how}")
    # Processes that share batches read all files.
    return dataclasses.replace(shard, num_shards=1, index=0) if shares_batches else shard


def batches(
    config: RunConfig,
    first_step: int,
    shard: data.DatasetShard | None = None,
    strategy: TernGradStrategy | None = None,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Returns endless batches from step `first_step` on, for `model.fit` under a strategy.

    Without a shard, this process reads all files. In a cluster, the result is a
    `tf.distribute.DistributedDataset` of this process's part.
    """
    if strategy is None or strategy.tasks is None:
        return _batches(config, shard, config.data.batch_size, first_step)
    num_local = strategy.num_replicas_in_sync // strategy.num_processes
    if shard is not None and shard.shares_batches:
        first = strategy.process_index * num_local
        bounds = [
            config.data.batch_size * replica // strategy.num_replicas_in_sync
            for replica in range(first, first + num_local + 1)
        ]
        return strategy.distribute_datasets_from_function(
            lambda context: rows_of_batches(config, shard, first_step, bounds)
        )
    batch_size = config.data.batch_size // strategy.num_replicas_in_sync
    # The replicas take batches in turn.
    return strategy.distribute_datasets_from_function(
        lambda context: _batches(config, shard, batch_size, first_step * num_local)
    )


def rows_of_batches(
    config: RunConfig, shard: data.DatasetShard, first_step: int, bounds: Sequence[int]
) -> tf.data.Dataset:
    """Returns the rows between bounds of a run's batches: one element per batch and replica.

    Args:
        bounds: first row of each of this process's replicas, and of the next process's, ascending.
    """
    rows = bounds[0], bounds[-1]
    found = _batches(config, shard, config.data.batch_size, first_step, rows)
    if len(bounds) == 2:
        return found
    lengths = {end - begin for begin, end in itertools.pairwise(bounds)}
    offsets = tf.constant([bound - bounds[0] for bound in bounds], tf.int64)

    def of_replicas(*batch):
        def of_replica(replica):
            begin, end = offsets[replica], offsets[replica + 1]
            parts = tf.nest.map_structure(lambda value: value[begin:end], batch)
            if len(lengths) > 1:
                return parts
            (length,) = lengths
            return tf.nest.map_structure(
                lambda part: tf.ensure_shape(part, [length, *part.shape[1:]]), parts
            )

        return tf.data.Dataset.range(len(bounds) - 1).map(of_replica)

    return found.flat_map(of_replicas)


def _batches(config, shard, batch_size, start_step, rows=None):
    shard = shard or data.DatasetShard(0, 0, 0)
    seed = config.seed + shard.seed_offset
    if config.data.benchmark_mode:
        found = synthetic.load(
            config.data.dataset_name,
            batch_size if rows is None else rows[1] - rows[0],
            config.model.image_size,
            seed=seed,
            start_step=start_step,
        )
    else:
        found = data.load(
            config.data,
            batch_size,
            config.model.image_size,
            True,
            preprocessing=models.preprocessing(config.model.net),
            shuffle_buffer=1024 * config.data.input_queue_memory_factor,
            seed=seed,
            start_step=start_step,
            num_input_pipelines=shard.num_shards,
            input_pipeline_id=shard.index,
            rows=rows,
        )
    return losses.with_targets(config.model.net, found)
